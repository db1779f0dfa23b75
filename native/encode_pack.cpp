// Fixed-width values: statistics of a page, FastLanes packing, run-length coding, nulls filled.
#include <nanobind/stl/pair.h>

#include <bit>
#include <vector>

#include "encode.h"

namespace tiltyard {
namespace {

constexpr std::size_t kRunCut = 4096;  // a run is counted anew at every multiple of this (compression.md 4)
constexpr std::size_t kRunMax = 255;   // a run length is one byte

template <typename T>
[[gnu::always_inline]] inline std::uint64_t stats_impl(const std::uint8_t* from, std::size_t n, std::uint8_t* widths) {
  std::uint64_t changes = 0;
  T last = n ? load<T>(from) : T{0};
  T block[kBlock + 1];
  for (std::size_t start = 0, b = 0; start < n; start += kBlock, ++b) {
    const std::size_t count = n - start < kBlock ? n - start : kBlock;
    block[0] = last;
    std::memcpy(block + 1, from + start * sizeof(T), count * sizeof(T));
    T all = 0;
    for (std::size_t i = 1; i <= count; ++i) all |= block[i];
    std::uint64_t here = 0;
    for (std::size_t i = 1; i <= count; ++i) here += block[i] != block[i - 1];
    changes += here;
    last = block[count];
    widths[b] = static_cast<std::uint8_t>(std::bit_width(all));
  }
  return changes;
}

TY_CLONES std::uint64_t stats8(const std::uint8_t* p, std::size_t n, std::uint8_t* w) { return stats_impl<std::uint8_t>(p, n, w); }
TY_CLONES std::uint64_t stats16(const std::uint8_t* p, std::size_t n, std::uint8_t* w) { return stats_impl<std::uint16_t>(p, n, w); }
TY_CLONES std::uint64_t stats32(const std::uint8_t* p, std::size_t n, std::uint8_t* w) { return stats_impl<std::uint32_t>(p, n, w); }
TY_CLONES std::uint64_t stats64(const std::uint8_t* p, std::size_t n, std::uint8_t* w) { return stats_impl<std::uint64_t>(p, n, w); }

// Run entries of n values from `from`, each at most kRunMax long.
template <typename T>
std::uint64_t entries_of(const std::uint8_t* from, std::size_t n) {
  std::uint64_t entries = 0;
  for (std::size_t i = 0; i < n;) {
    const T value = load<T>(from + i * sizeof(T));
    std::size_t j = i + 1;
    while (j < n && load<T>(from + j * sizeof(T)) == value) ++j;
    entries += (j - i + kRunMax - 1) / kRunMax;
    i = j;
  }
  return entries;
}

// One FastLanes block (compression.md 3.2): L lanes side by side, so every inner loop is a vector loop.
template <typename T>
[[gnu::always_inline]] inline void pack_impl(const T* in, T* out, unsigned width) {
  constexpr unsigned bits = sizeof(T) * 8;
  constexpr unsigned lanes = kBlock / bits;
  if (width == 0) return;
  for (unsigned row = 0; row < bits; ++row) {
    const T* source = in + kOrder[row >> 3] * 16 + (row & 7) * 128;
    const unsigned at = row * width, word = at / bits, shift = at % bits;
    T* target = out + word * lanes;
    if (shift == 0) {
      for (unsigned l = 0; l < lanes; ++l) target[l] = source[l];
    } else {
      for (unsigned l = 0; l < lanes; ++l) target[l] = static_cast<T>(target[l] | (source[l] << shift));
    }
    if (shift + width > bits) {
      for (unsigned l = 0; l < lanes; ++l) target[lanes + l] = static_cast<T>(source[l] >> (bits - shift));
    }
  }
}

TY_CLONES void pack8(const std::uint8_t* in, std::uint8_t* out, unsigned w) { pack_impl(in, out, w); }
TY_CLONES void pack16(const std::uint16_t* in, std::uint16_t* out, unsigned w) { pack_impl(in, out, w); }
TY_CLONES void pack32(const std::uint32_t* in, std::uint32_t* out, unsigned w) { pack_impl(in, out, w); }
TY_CLONES void pack64(const std::uint64_t* in, std::uint64_t* out, unsigned w) { pack_impl(in, out, w); }

inline void pack(const std::uint8_t* in, std::uint8_t* out, unsigned w) { pack8(in, out, w); }
inline void pack(const std::uint16_t* in, std::uint16_t* out, unsigned w) { pack16(in, out, w); }
inline void pack(const std::uint32_t* in, std::uint32_t* out, unsigned w) { pack32(in, out, w); }
inline void pack(const std::uint64_t* in, std::uint64_t* out, unsigned w) { pack64(in, out, w); }

// Packs `count` values (zero-padded to a block) and writes 128 * width bytes. False when a value is wider.
template <typename T>
bool pack_block(const std::uint8_t* from, std::size_t count, unsigned width, std::uint8_t* to) {
  alignas(64) T in[kBlock];
  alignas(64) T out[kBlock];
  std::memcpy(in, from, count * sizeof(T));
  if (count < kBlock) std::memset(in + count, 0, (kBlock - count) * sizeof(T));
  T all = 0;
  for (std::size_t i = 0; i < count; ++i) all |= in[i];
  if (static_cast<unsigned>(std::bit_width(all)) > width) return false;
  pack(in, out, width);
  std::memcpy(to, out, 128 * width);
  return true;
}

template <typename F>
auto by_bits(unsigned bits, F&& body) {
  switch (bits) {
    case 8: return body(std::uint8_t{});
    case 16: return body(std::uint16_t{});
    case 32: return body(std::uint32_t{});
    case 64: return body(std::uint64_t{});
  }
  fail("word width must be 8, 16, 32 or 64 bits");
}

std::pair<std::uint64_t, std::uint64_t> fixed_stats(In<std::uint8_t> values, unsigned bits, Out<std::uint8_t> widths) {
  require(bits == 8 || bits == 16 || bits == 32 || bits == 64, "word width must be 8, 16, 32 or 64 bits");
  const std::size_t size = bits / 8;
  require(values.size() % size == 0, "values are not whole words");
  const std::size_t n = values.size() / size;
  require(widths.size() == (n + kBlock - 1) / kBlock, "one width per block of 1024");
  nb::gil_scoped_release release;
  const std::uint8_t* p = values.data();
  std::uint64_t changes = 0;
  switch (bits) {
    case 8: changes = stats8(p, n, widths.data()); break;
    case 16: changes = stats16(p, n, widths.data()); break;
    case 32: changes = stats32(p, n, widths.data()); break;
    default: changes = stats64(p, n, widths.data()); break;
  }
  if (n == 0) return {0, 0};
  // Exact entries matter only where runs can win at all; elsewhere the number of changes is a lower bound.
  if ((changes + 1) * (size + 1) >= n * size) return {changes + 1, changes};
  std::uint64_t entries = 0;
  for (std::size_t i = 0; i < n; i += kRunCut) {
    const std::size_t count = n - i < kRunCut ? n - i : kRunCut;
    entries += by_bits(bits, [&](auto t) { return entries_of<decltype(t)>(p + i * size, count); });
  }
  return {entries, changes};
}

std::uint64_t pack_inline(In<std::uint8_t> values, unsigned bits, In<std::uint8_t> widths, Out<std::uint8_t> out) {
  const std::size_t size = bits / 8;
  require(size > 0 && values.size() % size == 0, "values are not whole words");
  const std::size_t n = values.size() / size, blocks = (n + kBlock - 1) / kBlock;
  require(widths.size() == blocks, "one width per block of 1024");
  std::size_t total = 0;
  for (std::size_t b = 0; b < blocks; ++b) {
    require(widths.data()[b] <= bits, "packed width above the word width");
    total += size + 128 * widths.data()[b];
  }
  require(out.size() == total, "output has the wrong size");
  nb::gil_scoped_release release;
  by_bits(bits, [&](auto t) {
    using T = decltype(t);
    std::uint8_t* to = out.data();
    for (std::size_t b = 0; b < blocks; ++b) {
      const unsigned width = widths.data()[b];
      const std::size_t count = n - b * kBlock < kBlock ? n - b * kBlock : kBlock;
      store<T>(to, static_cast<T>(width));
      to += size;
      require(pack_block<T>(values.data() + b * kBlock * size, count, width, to), "a value is wider than its block");
      to += 128 * width;
    }
  });
  return total;
}

std::uint64_t pack_out_of_line(In<std::uint8_t> values, unsigned bits, In<std::int64_t> ends, unsigned width,
                               Out<std::uint8_t> out, Out<std::int64_t> out_ends) {
  const std::size_t size = bits / 8;
  require(size > 0 && values.size() % size == 0, "values are not whole words");
  require(width <= bits && ends.size() == out_ends.size(), "bad width or number of chunks");
  nb::gil_scoped_release release;
  return by_bits(bits, [&](auto t) -> std::uint64_t {
    using T = decltype(t);
    const std::size_t words_per_block = kBlock * width / bits;
    std::size_t from = 0, at = 0;
    for (std::size_t c = 0; c < ends.size(); ++c) {
      require(ends.data()[c] >= static_cast<std::int64_t>(from), "chunk ends must not decrease");
      const std::size_t end = static_cast<std::size_t>(ends.data()[c]);
      require(end <= values.size() / size, "a chunk ends behind the values");
      while (from < end) {
        const std::size_t count = end - from < kBlock ? end - from : kBlock;
        const std::uint8_t* p = values.data() + from * size;
        if (count == kBlock || words_per_block < count) {
          require(at + 128 * width <= out.size(), "output is too small");
          require(pack_block<T>(p, count, width, out.data() + at), "a value is wider than the packed width");
          at += 128 * width;
        } else {
          require(at + count * size <= out.size(), "output is too small");
          std::memcpy(out.data() + at, p, count * size);
          at += count * size;
        }
        from += count;
      }
      out_ends.data()[c] = static_cast<std::int64_t>(at);
    }
    return at;
  });
}

// Entries that n values need, or more than `budget` as soon as that is certain.
template <typename T>
std::size_t run_entries(const std::uint8_t* from, std::size_t n, std::size_t budget) {
  std::size_t entries = 0;
  for (std::size_t i = 0; i < n && entries <= budget;) {
    const T value = load<T>(from + i * sizeof(T));
    std::size_t j = i + 1;
    while (j < n && load<T>(from + j * sizeof(T)) == value) ++j;
    entries += (j - i + kRunMax - 1) / kRunMax;
    i = j;
  }
  return entries;
}

std::pair<std::uint64_t, std::uint64_t> rle_encode(In<std::uint8_t> values, unsigned bits, std::uint64_t max_items,
                                                   std::uint64_t max_bytes, Out<std::uint8_t> out_values,
                                                   Out<std::uint8_t> out_lengths, Out<std::int64_t> chunk_items,
                                                   Out<std::int64_t> chunk_entries) {
  const std::size_t size = bits / 8;
  require(size > 0 && values.size() % size == 0, "values are not whole words");
  require(max_items >= 2 && (max_items & (max_items - 1)) == 0, "the most values of a chunk must be a power of two");
  const std::size_t n = values.size() / size;
  nb::gil_scoped_release release;
  return by_bits(bits, [&](auto t) -> std::pair<std::uint64_t, std::uint64_t> {
    using T = decltype(t);
    const std::size_t budget = max_bytes / (size + 1);
    std::size_t at = 0, entry = 0, chunk = 0;
    while (at < n) {
      const std::uint8_t* p = values.data() + at * size;
      const std::size_t left = n - at;
      std::size_t take = left;
      if (left > max_items || run_entries<T>(p, left, budget) > budget) {
        take = std::bit_floor(left < max_items ? left : static_cast<std::size_t>(max_items));
        while (take > 2 && run_entries<T>(p, take, budget) > budget) take /= 2;
      }
      const std::size_t before = entry;
      for (std::size_t i = 0; i < take;) {
        const T value = load<T>(p + i * size);
        std::size_t j = i + 1;
        while (j < take && load<T>(p + j * size) == value) ++j;
        for (std::size_t run = j - i; run > 0;) {
          const std::size_t length = run < kRunMax ? run : kRunMax;
          require((entry + 1) * size <= out_values.size() && entry < out_lengths.size(), "output is too small");
          store<T>(out_values.data() + entry * size, value);
          out_lengths.data()[entry++] = static_cast<std::uint8_t>(length);
          run -= length;
        }
        i = j;
      }
      require(chunk < chunk_items.size() && chunk < chunk_entries.size(), "too few chunk slots");
      chunk_items.data()[chunk] = static_cast<std::int64_t>(take);
      chunk_entries.data()[chunk++] = static_cast<std::int64_t>(entry - before);
      at += take;
    }
    return {chunk, entry};
  });
}

std::uint64_t rle_block(In<std::uint16_t> values, In<std::int64_t> ends, Out<std::uint8_t> out, Out<std::int64_t> out_ends) {
  require(ends.size() == out_ends.size(), "one output end per chunk");
  nb::gil_scoped_release release;
  std::size_t from = 0, at = 0;
  for (std::size_t c = 0; c < ends.size(); ++c) {
    require(ends.data()[c] >= static_cast<std::int64_t>(from) && static_cast<std::size_t>(ends.data()[c]) <= values.size(),
            "a chunk ends outside the levels");
    const std::size_t end = static_cast<std::size_t>(ends.data()[c]);
    const auto* p = reinterpret_cast<const std::uint8_t*>(values.data() + from);
    const std::size_t entries = entries_of<std::uint16_t>(p, end - from);
    require(at + 8 + 3 * entries <= out.size(), "output is too small");
    store<std::uint64_t>(out.data() + at, 2 * entries);
    std::uint8_t* run_values = out.data() + at + 8;
    std::uint8_t* lengths = run_values + 2 * entries;
    while (from < end) {
      std::size_t j = from + 1;
      while (j < end && values.data()[j] == values.data()[from]) ++j;
      for (std::size_t run = j - from; run > 0;) {
        const std::size_t length = run < kRunMax ? run : kRunMax;
        store<std::uint16_t>(run_values, values.data()[from]);
        run_values += 2;
        *lengths++ = static_cast<std::uint8_t>(length);
        run -= length;
      }
      from = j;
    }
    at += 8 + 3 * entries;
    out_ends.data()[c] = static_cast<std::int64_t>(at);
  }
  return at;
}

std::uint64_t rle_block_size(In<std::uint16_t> values, In<std::int64_t> ends, std::uint64_t limit) {
  nb::gil_scoped_release release;
  std::size_t from = 0, total = 0;
  for (std::size_t c = 0; c < ends.size() && total <= limit; ++c) {
    require(ends.data()[c] >= static_cast<std::int64_t>(from) && static_cast<std::size_t>(ends.data()[c]) <= values.size(),
            "a chunk ends outside the levels");
    const std::size_t end = static_cast<std::size_t>(ends.data()[c]);
    total += 8 + 3 * entries_of<std::uint16_t>(reinterpret_cast<const std::uint8_t*>(values.data() + from), end - from);
    from = end;
  }
  return total;
}

void fill_nulls(Out<std::uint8_t> values, std::uint64_t size, In<std::uint8_t> nulls) {
  require(size > 0 && values.size() == nulls.size() * size, "one null flag per value");
  nb::gil_scoped_release release;
  const std::size_t n = nulls.size();
  std::size_t first = 0;
  while (first < n && nulls.data()[first]) ++first;
  std::uint8_t* p = values.data();
  if (first == n) {
    std::memset(p, 0, values.size());
    return;
  }
  for (std::size_t i = 0; i < first; ++i) std::memcpy(p + i * size, p + first * size, size);
  auto rest = [&](auto fixed) {
    const std::size_t width = decltype(fixed)::value ? decltype(fixed)::value : size;
    for (std::size_t i = first + 1; i < n; ++i) {
      if (nulls.data()[i]) std::memcpy(p + i * width, p + (i - 1) * width, width);
    }
  };
  switch (size) {
    case 1: rest(std::integral_constant<std::size_t, 1>{}); break;
    case 2: rest(std::integral_constant<std::size_t, 2>{}); break;
    case 4: rest(std::integral_constant<std::size_t, 4>{}); break;
    case 8: rest(std::integral_constant<std::size_t, 8>{}); break;
    case 16: rest(std::integral_constant<std::size_t, 16>{}); break;
    default: rest(std::integral_constant<std::size_t, 0>{}); break;
  }
}

void copy_bits(In<std::uint8_t> bits, std::uint64_t start, std::uint64_t count, Out<std::uint8_t> out) {
  require(start + count >= start && (start + count + 7) / 8 <= bits.size(), "bits end behind the buffer");
  require(out.size() == (count + 7) / 8, "output has the wrong size");
  if (count == 0) return;
  nb::gil_scoped_release release;
  const std::uint8_t* p = bits.data() + start / 8;
  const std::size_t have = bits.size() - start / 8, shift = start % 8;
  if (shift == 0) {
    std::memcpy(out.data(), p, out.size());
  } else {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const unsigned high = i + 1 < have ? p[i + 1] : 0;
      out.data()[i] = static_cast<std::uint8_t>((p[i] >> shift) | (high << (8 - shift)));
    }
  }
  if (count % 8) out.data()[out.size() - 1] &= static_cast<std::uint8_t>((1u << (count % 8)) - 1);
}

}  // namespace

void bind_pack(nb::module_& m) {
  m.def("fixed_stats", &fixed_stats, nb::arg("values"), nb::arg("bits"), nb::arg("widths"));
  m.def("pack_inline", &pack_inline, nb::arg("values"), nb::arg("bits"), nb::arg("widths"), nb::arg("out"));
  m.def("pack_out_of_line", &pack_out_of_line, nb::arg("values"), nb::arg("bits"), nb::arg("ends"), nb::arg("width"),
        nb::arg("out"), nb::arg("out_ends"));
  m.def("rle_encode", &rle_encode, nb::arg("values"), nb::arg("bits"), nb::arg("max_items"), nb::arg("max_bytes"),
        nb::arg("out_values"), nb::arg("out_lengths"), nb::arg("chunk_items"), nb::arg("chunk_entries"));
  m.def("rle_block", &rle_block, nb::arg("values"), nb::arg("ends"), nb::arg("out"), nb::arg("out_ends"));
  m.def("rle_block_size", &rle_block_size, nb::arg("values"), nb::arg("ends"), nb::arg("limit"));
  m.def("fill_nulls", &fill_nulls, nb::arg("values"), nb::arg("size"), nb::arg("nulls"));
  m.def("copy_bits", &copy_bits, nb::arg("bits"), nb::arg("start"), nb::arg("count"), nb::arg("out"));
}

}  // namespace tiltyard
