// The module of the kernels that read: every function is a loop over values between plain arrays.
#include "common.h"

NB_MODULE(_decode, m) {
  (void)m;
}
