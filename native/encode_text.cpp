// Variable-width values: chunk plan and chunk bytes of `Variable`, gathering, FSST training and encoding.
#include <algorithm>
#include <vector>

#include "encode.h"

namespace tiltyard {
namespace {

void check_offsets(const In<std::int64_t>& offsets, std::size_t bytes) {
  require(offsets.size() > 0 && offsets.data()[0] >= 0, "offsets must start at or above zero");
  for (std::size_t i = 1; i < offsets.size(); ++i)
    require(offsets.data()[i] >= offsets.data()[i - 1], "offsets must not decrease");
  require(static_cast<std::size_t>(offsets.data()[offsets.size() - 1]) <= bytes, "offsets end behind the data");
}

// The chunker of compression.md 6.1: grows by doubling while offsets and bytes stay within `target`.
std::uint64_t variable_chunks(In<std::int64_t> offsets, std::uint64_t width, std::uint64_t target, std::uint64_t max_items,
                              Out<std::int64_t> chunk_items) {
  require(offsets.size() > 0, "offsets must have one entry more than values");
  nb::gil_scoped_release release;
  const std::size_t n = offsets.size() - 1;
  const std::int64_t* o = offsets.data();
  std::size_t at = 0, chunk = 0;
  while (at < n) {
    const std::size_t left = n - at;
    auto size = [&](std::size_t m) { return static_cast<std::uint64_t>(o[at + m] - o[at]) + (m + 1) * width; };
    std::size_t take = left;
    if (left > 1) {
      take = 2;
      for (std::size_t next = 4;; next *= 2) {
        if (next > left) {
          if (size(left) <= target) take = left;
          break;
        }
        if (size(next) > target) break;
        if (2 * next > max_items) break;
        take = next;
      }
      take = std::min(take, left);
    }
    require(chunk < chunk_items.size(), "too few chunk slots");
    chunk_items.data()[chunk++] = static_cast<std::int64_t>(take);
    at += take;
  }
  return chunk;
}

template <typename W>
std::size_t write_chunks(const std::uint8_t* data, const std::int64_t* o, const In<std::int64_t>& chunk_items,
                         Out<std::uint8_t>& out, Out<std::int64_t>& ends, std::size_t n) {
  std::size_t at = 0, to = 0;
  for (std::size_t c = 0; c < chunk_items.size(); ++c) {
    const std::int64_t wanted = chunk_items.data()[c];
    require(wanted >= 0 && static_cast<std::size_t>(wanted) <= n - at, "chunks hold more values than there are");
    const std::size_t items = static_cast<std::size_t>(wanted);
    const std::int64_t base = o[at];
    const std::size_t head = (items + 1) * sizeof(W), bytes = static_cast<std::size_t>(o[at + items] - base);
    const std::size_t size = (head + bytes + sizeof(W) - 1) / sizeof(W) * sizeof(W);
    require(size <= out.size() - to, "output is too small");
    std::uint8_t* p = out.data() + to;
    for (std::size_t i = 0; i <= items; ++i) store<W>(p + i * sizeof(W), static_cast<W>(head + static_cast<std::size_t>(o[at + i] - base)));
    std::memcpy(p + head, data + base, bytes);
    std::memset(p + head + bytes, 0x48, size - head - bytes);
    at += items;
    to += size;
    ends.data()[c] = static_cast<std::int64_t>(to);
  }
  require(at == n && to == out.size(), "output has the wrong size");
  return to;
}

std::uint64_t variable_encode(In<std::uint8_t> data, In<std::int64_t> offsets, std::uint64_t width, In<std::int64_t> chunk_items,
                              Out<std::uint8_t> out, Out<std::int64_t> ends) {
  require(width == 4 || width == 8, "offsets have 4 or 8 bytes");
  require(chunk_items.size() == ends.size(), "one end per chunk");
  nb::gil_scoped_release release;
  check_offsets(offsets, data.size());
  const std::size_t n = offsets.size() - 1;
  return width == 4 ? write_chunks<std::uint32_t>(data.data(), offsets.data(), chunk_items, out, ends, n)
                    : write_chunks<std::uint64_t>(data.data(), offsets.data(), chunk_items, out, ends, n);
}

void copy_variable(In<std::uint8_t> data, In<std::int64_t> starts, In<std::int64_t> out_offsets, Out<std::uint8_t> out) {
  require(out_offsets.size() == starts.size() + 1, "one output offset more than values");
  nb::gil_scoped_release release;
  check_offsets(out_offsets, out.size());
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::size_t size = static_cast<std::size_t>(out_offsets.data()[i + 1] - out_offsets.data()[i]);
    const std::int64_t from = starts.data()[i];
    require(from >= 0 && size <= data.size() && static_cast<std::size_t>(from) <= data.size() - size, "a value outside the data");
    std::memcpy(out.data() + out_offsets.data()[i], data.data() + from, size);
  }
}

// -- FSST (compression.md 3.6; Boncz, Neumann, Leis: FSST, VLDB 2020) -----------------------------------------------

constexpr int kSymbols = 255, kRounds = 5, kEscapeBase = 256;
constexpr std::size_t kTableBytes = 2312, kSlots = 4096;
constexpr std::uint64_t kMagic = 0x46535354ULL << 32 | 1ULL << 24;

struct Symbol {
  std::uint64_t value;
  std::uint32_t length;
};

inline std::uint64_t low_bytes(std::uint64_t word, std::size_t n) { return n >= 8 ? word : word & ((1ULL << (8 * n)) - 1); }

inline std::size_t slot_of(std::uint64_t word) {
  return static_cast<std::uint32_t>(static_cast<std::uint32_t>(word & 0xffffff) * 0x9E3779B1u) >> 20;
}

// Greedy matcher: a symbol of three or more bytes lives in the slot of its first three bytes (the first to come
// keeps it), shorter ones in a table over two bytes.
struct Matcher {
  struct Slot {
    std::uint64_t value = 1, mask = 0;
    std::uint32_t length = 0, code = 0;
  };
  static constexpr std::uint16_t kEscape = 0x8000;
  std::vector<Slot> slots = std::vector<Slot>(kSlots);
  std::vector<std::uint16_t> pairs = std::vector<std::uint16_t>(65536, 0x100 | kEscape);  // length << 8 | code
  std::uint16_t bytes[256];
  std::vector<Symbol> symbols;

  Matcher() { std::fill(bytes, bytes + 256, std::uint16_t{0x100 | kEscape}); }

  bool add(Symbol s) {
    const std::uint32_t code = static_cast<std::uint32_t>(symbols.size());
    if (s.length >= 3) {
      Slot& slot = slots[slot_of(s.value)];
      if (slot.length) return false;
      slot = {s.value, low_bytes(~0ULL, s.length), s.length, code};
    } else if (s.length == 2) {
      pairs[s.value] = static_cast<std::uint16_t>(0x200 | code);
    } else {
      bytes[s.value] = static_cast<std::uint16_t>(0x100 | code);
      for (unsigned second = 0; second < 256; ++second) {
        std::uint16_t& pair = pairs[s.value | second << 8];
        if (pair >> 8 != 2) pair = static_cast<std::uint16_t>(0x100 | code);
      }
    }
    symbols.push_back(s);
    return true;
  }

  // Length of the match at a position whose next eight bytes are `word`, `left` of them its own; the code, or
  // kEscapeBase + byte, goes to `code`.
  inline std::size_t match(std::uint64_t word, std::size_t left, std::uint32_t& code) const {
    const Slot& slot = slots[slot_of(word)];
    if ((word & slot.mask) == slot.value && slot.length <= left) {
      code = slot.code;
      return slot.length;
    }
    const std::uint16_t entry = left == 1 ? bytes[word & 0xff] : pairs[word & 0xffff];
    code = entry & kEscape ? kEscapeBase + static_cast<std::uint32_t>(word & 0xff) : entry & 0xffu;
    return (entry >> 8) & 0xf;
  }
};

inline std::uint64_t word_at(const std::uint8_t* p, std::size_t readable) {
  if (readable >= 8) return load<std::uint64_t>(p);
  std::uint64_t word = 0;
  std::memcpy(&word, p, readable);
  return word;
}

struct Candidate {
  std::uint64_t value, score;
  std::uint32_t length;
};

std::uint64_t fsst_train(In<std::uint8_t> data, In<std::int64_t> offsets, Out<std::uint8_t> table) {
  require(table.size() == kTableBytes, "a symbol table has 2312 bytes");
  nb::gil_scoped_release release;
  check_offsets(offsets, data.size());
  const std::uint8_t* limit = data.data() + data.size();
  Matcher matcher;
  std::vector<std::uint32_t> singles(512), pairs(512 * 512);
  std::vector<std::uint32_t> touched;
  std::vector<Candidate> found;
  for (int round = 0; round < kRounds; ++round) {
    std::fill(singles.begin(), singles.end(), 0);
    for (std::uint32_t key : touched) pairs[key] = 0;
    touched.clear();
    const bool last = round + 1 == kRounds;
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      const std::uint8_t* p = data.data() + offsets.data()[i];
      const std::uint8_t* end = data.data() + offsets.data()[i + 1];
      std::uint32_t previous = 0;
      bool first = true;
      while (p < end) {
        std::uint32_t code;
        const std::size_t length = matcher.match(word_at(p, static_cast<std::size_t>(limit - p)), static_cast<std::size_t>(end - p), code);
        ++singles[code];
        if (length > 1) ++singles[kEscapeBase + *p];
        if (!first && !last) {
          const std::uint32_t key = previous * 512 + code;
          if (pairs[key]++ == 0) touched.push_back(key);
        }
        previous = code;
        first = false;
        p += length;
      }
    }
    auto symbol = [&](std::uint32_t code) {
      return code >= kEscapeBase ? Symbol{code - kEscapeBase, 1} : matcher.symbols[code];
    };
    found.clear();
    for (std::uint32_t code = 0; code < 512; ++code) {
      if (!singles[code]) continue;
      const Symbol s = symbol(code);
      found.push_back({s.value, singles[code], s.length});
    }
    for (std::uint32_t key : touched) {
      const Symbol a = symbol(key / 512), b = symbol(key % 512);
      const std::uint32_t length = std::min<std::uint32_t>(8, a.length + b.length);
      const std::uint64_t joined = a.length >= 8 ? a.value : a.value | b.value << (8 * a.length);
      found.push_back({low_bytes(joined, length), pairs[key], length});
    }
    std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
      return a.length != b.length ? a.length < b.length : a.value < b.value;
    });
    std::size_t unique = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (unique && found[unique - 1].value == found[i].value && found[unique - 1].length == found[i].length) {
        found[unique - 1].score += found[i].score;
      } else {
        found[unique++] = found[i];
      }
    }
    found.resize(unique);
    for (Candidate& c : found) c.score *= c.length == 1 ? 8 : c.length;
    std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
      if (a.score != b.score) return a.score > b.score;
      return a.length != b.length ? a.length > b.length : a.value < b.value;
    });
    Matcher next;
    for (const Candidate& c : found) {
      if (next.symbols.size() == kSymbols) break;
      next.add({c.value, c.length});
    }
    matcher = std::move(next);
  }
  const std::size_t count = matcher.symbols.size();
  std::memset(table.data(), 0, kTableBytes);
  store<std::uint64_t>(table.data(), kMagic | count);
  for (std::size_t i = 0; i < count; ++i) {
    store<std::uint64_t>(table.data() + 8 + 8 * i, matcher.symbols[i].value);
    table.data()[8 + 8 * count + i] = static_cast<std::uint8_t>(matcher.symbols[i].length);
  }
  return count;
}

std::uint64_t fsst_encode(In<std::uint8_t> table, In<std::uint8_t> data, In<std::int64_t> offsets, Out<std::uint8_t> out,
                          Out<std::int64_t> out_offsets) {
  require(table.size() == kTableBytes, "a symbol table has 2312 bytes");
  require(offsets.size() > 0 && out_offsets.size() == offsets.size(), "one output offset per offset");
  nb::gil_scoped_release release;
  check_offsets(offsets, data.size());
  const std::size_t n = offsets.size() - 1;
  require(out.size() / 2 >= static_cast<std::size_t>(offsets.data()[n] - offsets.data()[0]),
          "output must have room for twice the input");
  Matcher matcher;
  const std::size_t count = table.data()[0];
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t length = table.data()[8 + 8 * count + i];
    require(length >= 1 && length <= 8, "a symbol has 1 to 8 bytes");
    require(matcher.add({low_bytes(load<std::uint64_t>(table.data() + 8 + 8 * i), length), length}), "two symbols share a slot");
  }
  const std::uint8_t* limit = data.data() + data.size();
  std::uint8_t* to = out.data();
  out_offsets.data()[0] = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint8_t* p = data.data() + offsets.data()[i];
    const std::uint8_t* end = data.data() + offsets.data()[i + 1];
    while (p < end) {
      std::uint32_t code;
      const std::size_t length = matcher.match(word_at(p, static_cast<std::size_t>(limit - p)), static_cast<std::size_t>(end - p), code);
      if (code >= static_cast<std::uint32_t>(kEscapeBase)) {
        *to++ = 255;
        *to++ = static_cast<std::uint8_t>(code - kEscapeBase);
      } else {
        *to++ = static_cast<std::uint8_t>(code);
      }
      p += length;
    }
    out_offsets.data()[i + 1] = to - out.data();
  }
  return static_cast<std::uint64_t>(to - out.data());
}

}  // namespace

void bind_text(nb::module_& m) {
  m.def("variable_chunks", &variable_chunks, nb::arg("offsets"), nb::arg("width"), nb::arg("target"), nb::arg("max_items"),
        nb::arg("chunk_items"));
  m.def("variable_encode", &variable_encode, nb::arg("data"), nb::arg("offsets"), nb::arg("width"), nb::arg("chunk_items"),
        nb::arg("out"), nb::arg("ends"));
  m.def("copy_variable", &copy_variable, nb::arg("data"), nb::arg("starts"), nb::arg("out_offsets"), nb::arg("out"));
  m.def("fsst_train", &fsst_train, nb::arg("data"), nb::arg("offsets"), nb::arg("table"));
  m.def("fsst_encode", &fsst_encode, nb::arg("table"), nb::arg("data"), nb::arg("offsets"), nb::arg("out"),
        nb::arg("out_offsets"));
}

}  // namespace tiltyard
