// The module of the kernels that write: every function is a loop over values between plain arrays.
#include "common.h"

NB_MODULE(_encode, m) {
  (void)m;
}
