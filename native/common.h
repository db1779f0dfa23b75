// What every kernel shares: array types of the boundary, bounds errors, and the clones of hot loops.
//
// Rules of this folder: arrays come in with their sizes and every offset read from them is checked before it
// is used; nothing is allocated whose size the caller did not give; the GIL is released around the loop; a
// violation raises std::invalid_argument (ValueError in Python), which the caller turns into CorruptFile.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

namespace nb = nanobind;

namespace tiltyard {

template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// One binary for every x86-64 machine: the loader picks the AVX2 form where the processor has it.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define TY_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define TY_CLONES
#endif

[[noreturn]] inline void fail(const std::string& what) { throw std::invalid_argument(what); }

inline void require(bool holds, const char* what) {
  if (!holds) fail(what);
}

}  // namespace tiltyard
