// Hash dictionaries: distinct values in order of first appearance, and the index of every value.
#include <vector>

#include "encode.h"

namespace tiltyard {
namespace {

// Open addressing over (tag, entry + 1); grows by doubling, never beyond four times the entries it was promised.
class Table {
 public:
  Table() : cells_(1024) {}

  // Finds the entry whose hash is `hash` and for which `same(entry)` holds, or -1.
  template <typename Same>
  std::int64_t find(std::uint64_t hash, Same&& same) const {
    const std::size_t mask = cells_.size() - 1;
    const std::uint32_t tag = static_cast<std::uint32_t>(hash >> 32);
    for (std::size_t at = hash & mask;; at = (at + 1) & mask) {
      const Cell& cell = cells_[at];
      if (cell.entry == 0) return -1;
      if (cell.tag == tag && same(cell.entry - 1)) return cell.entry - 1;
    }
  }

  void insert(std::uint64_t hash) {
    hashes_.push_back(hash);
    if (hashes_.size() * 2 > cells_.size()) {
      cells_.assign(cells_.size() * 4, Cell{});
      for (std::size_t i = 0; i < hashes_.size(); ++i) place(hashes_[i], static_cast<std::uint32_t>(i));
    } else {
      place(hash, static_cast<std::uint32_t>(hashes_.size() - 1));
    }
  }

 private:
  struct Cell {
    std::uint32_t tag = 0, entry = 0;
  };

  void place(std::uint64_t hash, std::uint32_t entry) {
    const std::size_t mask = cells_.size() - 1;
    std::size_t at = hash & mask;
    while (cells_[at].entry) at = (at + 1) & mask;
    cells_[at] = {static_cast<std::uint32_t>(hash >> 32), entry + 1};
  }

  std::vector<Cell> cells_;
  std::vector<std::uint64_t> hashes_;
};

inline std::uint64_t hash_bytes(const std::uint8_t* p, std::size_t n) {
  std::uint64_t h = n * 0x9e3779b97f4a7c15ULL;
  const std::uint8_t* end = p + n;
  for (; end - p >= 8; p += 8) h = (h ^ load<std::uint64_t>(p)) * 0xff51afd7ed558ccdULL, h ^= h >> 29;
  std::uint64_t rest = 0;
  const std::size_t left = static_cast<std::size_t>(end - p);
  if (left >= 4) {
    rest = load<std::uint32_t>(p) | static_cast<std::uint64_t>(load<std::uint32_t>(end - 4)) << 32;
  } else if (left) {
    rest = p[0] | static_cast<std::uint64_t>(p[left / 2]) << 8 | static_cast<std::uint64_t>(p[left - 1]) << 16;
  }
  return mix(h ^ rest);
}

std::int64_t dictionary_variable(In<std::uint8_t> data, In<std::int64_t> offsets, In<std::uint8_t> nulls,
                                 std::uint64_t max_bytes, Out<std::uint32_t> indices, Out<std::int64_t> first) {
  const std::size_t n = indices.size();
  require(offsets.size() == n + 1, "one index per value");
  require(nulls.size() == 0 || nulls.size() == n, "one null flag per value");
  require(first.size() < 0xffffffffu, "too many entries");
  nb::gil_scoped_release release;
  require(offsets.data()[0] >= 0, "offsets must start at or above zero");
  Table table;
  std::size_t count = 0, bytes = 0;
  std::uint32_t last = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (nulls.size() && nulls.data()[i]) {
      indices.data()[i] = last;
      continue;
    }
    const std::int64_t from = offsets.data()[i], end = offsets.data()[i + 1];
    require(end >= from && static_cast<std::size_t>(end) <= data.size(), "offsets outside the data");
    const std::uint8_t* p = data.data() + from;
    const std::size_t size = static_cast<std::size_t>(end - from);
    const std::uint64_t hash = hash_bytes(p, size);
    std::int64_t entry = table.find(hash, [&](std::uint32_t e) {
      const std::int64_t at = offsets.data()[first.data()[e]];
      const std::size_t length = static_cast<std::size_t>(offsets.data()[first.data()[e] + 1] - at);
      return length == size && std::memcmp(data.data() + at, p, size) == 0;
    });
    if (entry < 0) {
      bytes += size;
      if (count == first.size() || bytes > max_bytes) return -1;
      entry = static_cast<std::int64_t>(count);
      first.data()[count++] = static_cast<std::int64_t>(i);
      table.insert(hash);
    }
    last = static_cast<std::uint32_t>(entry);
    indices.data()[i] = last;
  }
  return static_cast<std::int64_t>(count);
}

template <std::size_t Size>
std::int64_t fixed_entries(const std::uint8_t* p, std::size_t n, Out<std::uint32_t>& indices, Out<std::int64_t>& first) {
  Table table;
  std::size_t count = 0;
  std::uint32_t last = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint8_t* value = p + i * Size;
    if (i && std::memcmp(value, value - Size, Size) == 0) {
      indices.data()[i] = last;
      continue;
    }
    std::uint64_t low = 0, high = 0;
    std::memcpy(&low, value, Size < 8 ? Size : 8);
    if (Size == 16) std::memcpy(&high, value + Size - 8, 8);
    const std::uint64_t hash = mix(low ^ mix(high));
    std::int64_t entry =
        table.find(hash, [&](std::uint32_t e) { return std::memcmp(p + first.data()[e] * Size, value, Size) == 0; });
    if (entry < 0) {
      if (count == first.size()) return -1;
      entry = static_cast<std::int64_t>(count);
      first.data()[count++] = static_cast<std::int64_t>(i);
      table.insert(hash);
    }
    last = static_cast<std::uint32_t>(entry);
    indices.data()[i] = last;
  }
  return static_cast<std::int64_t>(count);
}

std::int64_t dictionary_fixed(In<std::uint8_t> values, std::uint64_t size, Out<std::uint32_t> indices, Out<std::int64_t> first) {
  const std::size_t n = indices.size();
  require(size > 0 && values.size() == n * size, "one index per value");
  require(first.size() < 0xffffffffu, "too many entries");
  nb::gil_scoped_release release;
  switch (size) {
    case 1: return fixed_entries<1>(values.data(), n, indices, first);
    case 2: return fixed_entries<2>(values.data(), n, indices, first);
    case 4: return fixed_entries<4>(values.data(), n, indices, first);
    case 8: return fixed_entries<8>(values.data(), n, indices, first);
    case 16: return fixed_entries<16>(values.data(), n, indices, first);
  }
  fail("dictionaries are made of values of 1, 2, 4, 8 or 16 bytes");
}

}  // namespace

void bind_dictionary(nb::module_& m) {
  m.def("dictionary_variable", &dictionary_variable, nb::arg("data"), nb::arg("offsets"), nb::arg("nulls"),
        nb::arg("max_bytes"), nb::arg("indices"), nb::arg("first"));
  m.def("dictionary_fixed", &dictionary_fixed, nb::arg("values"), nb::arg("size"), nb::arg("indices"), nb::arg("first"));
}

}  // namespace tiltyard
