// xxHash64 (Yann Collet's specification) and the split-block Bloom filter of Parquet (transactions.md 9).
#include <bit>

#include "encode.h"

namespace tiltyard {
namespace {

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87ULL, kPrime2 = 0xC2B2AE3D27D4EB4FULL, kPrime3 = 0x165667B19E3779F9ULL,
                        kPrime4 = 0x85EBCA77C2B2AE63ULL, kPrime5 = 0x27D4EB2F165667C5ULL;
constexpr std::uint32_t kSalt[8] = {0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d,
                                    0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31};
constexpr std::size_t kFilterBlock = 32;  // bytes

inline std::uint64_t turn(std::uint64_t lane, std::uint64_t word) {
  return std::rotl(lane + word * kPrime2, 31) * kPrime1;
}

std::uint64_t hash_of(const std::uint8_t* p, std::size_t n, std::uint64_t seed) {
  const std::uint8_t* end = p + n;
  std::uint64_t h;
  if (n >= 32) {
    std::uint64_t a = seed + kPrime1 + kPrime2, b = seed + kPrime2, c = seed, d = seed - kPrime1;
    for (; end - p >= 32; p += 32) {
      a = turn(a, load<std::uint64_t>(p));
      b = turn(b, load<std::uint64_t>(p + 8));
      c = turn(c, load<std::uint64_t>(p + 16));
      d = turn(d, load<std::uint64_t>(p + 24));
    }
    h = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
    for (std::uint64_t lane : {a, b, c, d}) h = (h ^ turn(0, lane)) * kPrime1 + kPrime4;
  } else {
    h = seed + kPrime5;
  }
  h += n;
  for (; end - p >= 8; p += 8) h = std::rotl(h ^ turn(0, load<std::uint64_t>(p)), 27) * kPrime1 + kPrime4;
  if (end - p >= 4) {
    h = std::rotl(h ^ (load<std::uint32_t>(p) * kPrime1), 23) * kPrime2 + kPrime3;
    p += 4;
  }
  for (; p < end; ++p) h = std::rotl(h ^ (*p * kPrime5), 11) * kPrime1;
  h = (h ^ (h >> 33)) * kPrime2;
  h = (h ^ (h >> 29)) * kPrime3;
  return h ^ (h >> 32);
}

void xxhash64(In<std::uint8_t> data, In<std::int64_t> offsets, std::uint64_t seed, Out<std::uint64_t> out) {
  require(offsets.size() == out.size() + 1, "one hash per value");
  nb::gil_scoped_release release;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t from = offsets.data()[i], end = offsets.data()[i + 1];
    require(from >= 0 && end >= from && static_cast<std::size_t>(end) <= data.size(), "offsets outside the data");
    out.data()[i] = hash_of(data.data() + from, static_cast<std::size_t>(end - from), seed);
  }
}

void bloom_insert(In<std::uint64_t> hashes, Out<std::uint8_t> bitmap) {
  require(bitmap.size() > 0 && bitmap.size() % kFilterBlock == 0, "the filter must be whole blocks of 32 bytes");
  nb::gil_scoped_release release;
  const std::uint64_t blocks = bitmap.size() / kFilterBlock;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    const std::uint64_t h = hashes.data()[i];
    std::uint8_t* block = bitmap.data() + ((h >> 32) * blocks >> 32) * kFilterBlock;
    for (int w = 0; w < 8; ++w) {
      const std::uint32_t bit = (static_cast<std::uint32_t>(h) * kSalt[w]) >> 27;
      store<std::uint32_t>(block + 4 * w, load<std::uint32_t>(block + 4 * w) | (1u << bit));
    }
  }
}

}  // namespace

void bind_hash(nb::module_& m) {
  m.def("xxhash64", &xxhash64, nb::arg("data"), nb::arg("offsets"), nb::arg("seed"), nb::arg("out"));
  m.def("bloom_insert", &bloom_insert, nb::arg("hashes"), nb::arg("bitmap"));
}

}  // namespace tiltyard
