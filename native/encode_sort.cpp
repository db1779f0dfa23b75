// Sorting pairs of 64-bit keys and row ids for indices: a stable radix sort, least digit first.
#include <bit>
#include <utility>

#include "encode.h"

namespace tiltyard {
namespace {

constexpr unsigned kMostBits = 11;  // widest digit: a histogram of it fits the first cache
constexpr std::size_t kMostPasses = 8;

struct Pairs {
  std::uint64_t* keys;
  std::uint64_t* ids;
};

bool ascends(const std::uint64_t* keys, std::size_t n) {
  for (std::size_t i = 1; i < n; ++i)
    if (keys[i] < keys[i - 1]) return false;
  return true;
}

TY_CLONES void extremes(const std::uint64_t* keys, std::size_t n, std::uint64_t& least, std::uint64_t& most) {
  std::uint64_t low = keys[0], high = keys[0];
  for (std::size_t i = 1; i < n; ++i) {
    low = keys[i] < low ? keys[i] : low;
    high = keys[i] > high ? keys[i] : high;
  }
  least = low;
  most = high;
}

void pass(const Pairs& from, const Pairs& to, std::size_t n, std::uint64_t least, unsigned shift, std::uint64_t mask,
          std::size_t* starts) {
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t key = from.keys[i];
    const std::size_t at = starts[((key - least) >> shift) & mask]++;
    to.keys[at] = key;
    to.ids[at] = from.ids[i];
  }
}

// Digits are taken from what a key is above the least one, so that keys close to each other need few passes.
void sort_pairs(Out<std::uint64_t> keys, Out<std::uint64_t> ids, Out<std::uint64_t> key_room,
                Out<std::uint64_t> id_room) {
  const std::size_t n = keys.size();
  require(ids.size() == n && key_room.size() == n && id_room.size() == n, "four arrays of one length");
  nb::gil_scoped_release release;
  if (n < 2 || ascends(keys.data(), n)) return;
  std::uint64_t least, most;
  extremes(keys.data(), n, least, most);
  const unsigned bits = static_cast<unsigned>(std::bit_width(most - least));
  const unsigned passes = (bits + kMostBits - 1) / kMostBits;
  const unsigned width = (bits + passes - 1) / passes;
  const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
  const std::size_t slots = std::size_t{1} << width;
  std::size_t counts[kMostPasses][std::size_t{1} << kMostBits] = {};
  for (std::size_t i = 0; i < n; ++i) {
    std::uint64_t rest = keys.data()[i] - least;
    for (unsigned p = 0; p < passes; ++p, rest >>= width) ++counts[p][rest & mask];
  }
  Pairs from{keys.data(), ids.data()}, to{key_room.data(), id_room.data()};
  for (unsigned p = 0; p < passes; ++p) {
    std::size_t start = 0;
    bool one = false;
    for (std::size_t slot = 0; slot < slots; ++slot) {
      const std::size_t count = counts[p][slot];
      one = one || count == n;
      counts[p][slot] = start;
      start += count;
    }
    if (one) continue;  // all keys have the same digit here
    pass(from, to, n, least, p * width, mask, counts[p]);
    std::swap(from, to);
  }
  if (from.keys != keys.data()) {
    std::memcpy(keys.data(), from.keys, n * sizeof(std::uint64_t));
    std::memcpy(ids.data(), from.ids, n * sizeof(std::uint64_t));
  }
}

}  // namespace

void bind_sort(nb::module_& m) {
  m.def("sort_pairs", &sort_pairs, nb::arg("keys"), nb::arg("ids"), nb::arg("key_room"), nb::arg("id_room"));
}

}  // namespace tiltyard
