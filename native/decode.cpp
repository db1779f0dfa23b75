// The module of the kernels that read: every function is a loop over values between plain arrays.
#include "decode_page.h"

NB_MODULE(_decode, m) {
  // Arrow memory that other libraries hold until the process ends keeps arrays of ours: no leak to report.
  nb::set_leak_warnings(false);
  tiltyard::register_chunks(m);
  tiltyard::register_fixed(m);
  tiltyard::register_within(m);
  tiltyard::register_variable(m);
  tiltyard::register_levels(m);
  tiltyard::register_full_zip(m);
}
