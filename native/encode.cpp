// The module of the kernels that write: every function is a loop over values between plain arrays.
#include "encode.h"

NB_MODULE(_encode, m) {
  // Arrow memory that other libraries hold until the process ends keeps arrays of ours: no leak to report.
  nb::set_leak_warnings(false);
  m.doc() = "Loops of the writer; tiltyard.kernels.reference.encode holds the same functions in NumPy.";
  tiltyard::bind_pack(m);
  tiltyard::bind_text(m);
  tiltyard::bind_dictionary(m);
  tiltyard::bind_levels(m);
  tiltyard::bind_page(m);
  tiltyard::bind_hash(m);
  tiltyard::bind_crc(m);
  tiltyard::bind_utf8(m);
  tiltyard::bind_sort(m);
}
