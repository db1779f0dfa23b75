// The groups of kernels that make up the writing module; each source file binds one group.
#pragma once

#include "common.h"

namespace tiltyard {

// The FastLanes permutation of row groups (compression.md 3.2).
constexpr int kOrder[8] = {0, 4, 2, 6, 1, 5, 3, 7};
constexpr std::size_t kBlock = 1024;  // values in a FastLanes block

template <typename T>
inline T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
inline void store(void* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

inline bool bit_at(const std::uint8_t* bits, std::size_t at) { return (bits[at >> 3] >> (at & 7)) & 1; }

inline std::uint64_t mix(std::uint64_t h) {
  h ^= h >> 32;
  h *= 0x9e3779b97f4a7c15ULL;
  h ^= h >> 29;
  h *= 0xbf58476d1ce4e5b9ULL;
  return h ^ (h >> 32);
}

void bind_pack(nb::module_& m);
void bind_text(nb::module_& m);
void bind_dictionary(nb::module_& m);
void bind_levels(nb::module_& m);
void bind_page(nb::module_& m);
void bind_hash(nb::module_& m);
void bind_crc(nb::module_& m);
void bind_utf8(nb::module_& m);
void bind_sort(nb::module_& m);

}  // namespace tiltyard
