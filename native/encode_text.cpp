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
// How many values of each eight a round looks at: early tables are replaced soon, and learn enough from few.
constexpr std::size_t kShares[kRounds] = {1, 3, 5, 7, 8}, kShareOf = 8;
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

// What a match is: length << 12 | escape << 8 | first byte written (255 for an escape, whose second byte is the value's).
using Entry = std::uint32_t;
constexpr Entry kEscape = 0x100;
constexpr Entry kEscaped = 1u << 12 | kEscape | 0xff;

inline Entry entry_of(std::size_t length, std::size_t code) { return static_cast<Entry>(length << 12 | code); }

// The bytes of a word that a symbol of so many bytes covers.
constexpr std::uint64_t kMasks[9] = {0, 0xff, 0xffff, 0xffffff, 0xffffffff, 0xffffffffff, 0xffffffffffff, 0xffffffffffffff, ~0ULL};

// Greedy matcher: a symbol of three or more bytes lives in the slot of its first three bytes (the first to come
// keeps it), shorter ones in a table over two bytes.
struct Matcher {
  std::vector<std::uint64_t> values = std::vector<std::uint64_t>(kSlots, 1);  // nothing under the mask of length 0 is 1
  std::vector<std::uint16_t> entries = std::vector<std::uint16_t>(kSlots);
  std::vector<std::uint16_t> pairs = std::vector<std::uint16_t>(65536, kEscaped);
  std::uint16_t bytes[256];
  std::vector<Symbol> symbols;

  Matcher() { std::fill(bytes, bytes + 256, std::uint16_t{kEscaped}); }

  bool add(Symbol s) {
    const std::size_t code = symbols.size();
    const Entry entry = entry_of(s.length, code);
    if (s.length >= 3) {
      const std::size_t slot = slot_of(s.value);
      if (entries[slot]) return false;
      values[slot] = s.value;
      entries[slot] = static_cast<std::uint16_t>(entry);
    } else if (s.length == 2) {
      pairs[s.value] = static_cast<std::uint16_t>(entry);
    } else {
      bytes[s.value] = static_cast<std::uint16_t>(entry);
      for (unsigned second = 0; second < 256; ++second) {
        std::uint16_t& pair = pairs[s.value | second << 8];
        if (pair >> 12 != 2) pair = static_cast<std::uint16_t>(entry);
      }
    }
    symbols.push_back(s);
    return true;
  }

  // The match at a position whose next eight bytes are `word`, `left` of them its own. Without branches: which kind
  // of match comes next is what a processor cannot foresee.
  inline Entry match(std::uint64_t word, std::size_t left) const {
    const std::size_t slot = slot_of(word);
    const Entry entry = entries[slot];
    const Entry two = pairs[word & 0xffff], one = bytes[word & 0xff];
    const Entry brief = two >> 12 > left ? one : two;
    const bool hit = ((word & kMasks[entry >> 12]) == values[slot]) & (entry >> 12 <= left);
    const Entry keep = 0u - static_cast<Entry>(hit);
    return (entry & keep) | (brief & ~keep);
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

// Symbols that come up while a table is trained, each once with all that it scored. Room for `most`.
class Candidates {
 public:
  explicit Candidates(std::size_t most) {
    std::size_t cells = 64;
    while (cells < 2 * most) cells *= 2;
    cells_.assign(cells, 0);
    found_.reserve(most);
  }

  void add(std::uint64_t value, std::uint32_t length, std::uint64_t score) {
    const std::size_t mask = cells_.size() - 1;
    for (std::size_t at = mix(value + length) & mask;; at = (at + 1) & mask) {
      if (cells_[at] == 0) {
        found_.push_back({value, score, length});
        cells_[at] = static_cast<std::uint32_t>(found_.size());
        return;
      }
      Candidate& known = found_[cells_[at] - 1];
      if (known.value == value && known.length == length) {
        known.score += score;
        return;
      }
    }
  }

  // The best, as many as find a place: by bytes that they stand for (single bytes save an escape each), longer first.
  Matcher best() {
    for (Candidate& c : found_) c.score *= c.length == 1 ? 8 : c.length;
    auto worse = [](const Candidate& a, const Candidate& b) {
      if (a.score != b.score) return a.score < b.score;
      return a.length != b.length ? a.length < b.length : a.value > b.value;
    };
    std::make_heap(found_.begin(), found_.end(), worse);
    Matcher matcher;
    for (auto end = found_.end(); end != found_.begin() && matcher.symbols.size() < kSymbols; --end) {
      std::pop_heap(found_.begin(), end, worse);
      matcher.add({(end - 1)->value, (end - 1)->length});
    }
    return matcher;
  }

 private:
  std::vector<std::uint32_t> cells_;  // 0: free, else 1 + the place in `found_`
  std::vector<Candidate> found_;
};

std::uint64_t fsst_train(In<std::uint8_t> data, In<std::int64_t> offsets, Out<std::uint8_t> table) {
  require(table.size() == kTableBytes, "a symbol table has 2312 bytes");
  nb::gil_scoped_release release;
  check_offsets(offsets, data.size());
  const std::uint8_t* limit = data.data() + data.size();
  Matcher matcher;
  std::vector<std::uint32_t> singles(512), pairs(512 * 512);
  std::vector<std::uint32_t> touched;
  for (int round = 0; round < kRounds; ++round) {
    std::fill(singles.begin(), singles.end(), 0);
    for (std::uint32_t key : touched) pairs[key] = 0;
    touched.clear();
    const bool last = round + 1 == kRounds;
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      if (i % kShareOf >= kShares[round]) continue;
      const std::uint8_t* p = data.data() + offsets.data()[i];
      const std::uint8_t* end = data.data() + offsets.data()[i + 1];
      std::uint32_t previous = 0;
      bool first = true;
      while (p < end) {
        const Entry entry = matcher.match(word_at(p, static_cast<std::size_t>(limit - p)), static_cast<std::size_t>(end - p));
        const std::uint32_t code = entry & kEscape ? kEscapeBase + *p : entry & 0xff;
        const std::size_t length = entry >> 12;
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
    Candidates found(512 + touched.size());
    for (std::uint32_t code = 0; code < 512; ++code) {
      if (!singles[code]) continue;
      const Symbol s = symbol(code);
      found.add(s.value, s.length, singles[code]);
    }
    for (std::uint32_t key : touched) {
      const Symbol a = symbol(key / 512), b = symbol(key % 512);
      const std::uint32_t length = std::min<std::uint32_t>(8, a.length + b.length);
      const std::uint64_t joined = a.length >= 8 ? a.value : a.value | b.value << (8 * a.length);
      found.add(low_bytes(joined, length), length, pairs[key]);
    }
    matcher = found.best();
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

// A run of values; several are compressed in turns, so that their look-ups overlap. `begin`: where its bytes go, which
// is where they would go if all bytes before were escaped.
struct Lane {
  std::size_t first, row, stop;
  std::uint8_t *begin, *to;
};

constexpr std::size_t kLanes = 4, kLaneValues = 64;  // runs shorter than this are not worth the turns

struct Compressor {
  const Matcher& matcher;
  const std::uint8_t* data;
  const std::uint8_t* limit;
  const std::int64_t* offsets;
  std::int64_t* ends;  // of each value, in its lane

  // Goes on to the next value with bytes, whose end comes back; null at the end of the lane.
  const std::uint8_t* turn(Lane& lane, std::uint8_t* to) const {
    lane.to = to;
    for (;;) {
      ends[lane.row] = to - lane.begin;
      if (++lane.row == lane.stop) return nullptr;
      if (offsets[lane.row + 1] != offsets[lane.row]) return data + offsets[lane.row + 1];
    }
  }

  struct Cursor {  // where the lane reads, where its present value ends, where it writes
    const std::uint8_t *p, *end;
    std::uint8_t* to;
  };

  // The second byte is written always and kept for an escape; a value of one byte has room for two.
  void step(Cursor& at, std::uint64_t word) const {
    const Entry entry = matcher.match(word, static_cast<std::size_t>(at.end - at.p));
    at.to[0] = static_cast<std::uint8_t>(entry);
    at.to[1] = static_cast<std::uint8_t>(word);
    at.to += 1 + ((entry >> 8) & 1);
    at.p += entry >> 12;
  }

  // A step where eight bytes can be read; false when the lane has come to its end.
  bool step(Cursor& at, Lane& lane) const {
    step(at, load<std::uint64_t>(at.p));
    return at.p != at.end || (at.end = turn(lane, at.to));
  }

  // At the first value with bytes of a lane that has values.
  Cursor enter(Lane& lane) const {
    Cursor at{data + offsets[lane.row], data + offsets[lane.row + 1], lane.to};
    if (at.p == at.end) at.end = turn(lane, at.to);
    return at;
  }

  // The rest of a lane.
  void finish(Cursor at, Lane& lane) const {
    while (at.end) {
      while (at.p < at.end) step(at, word_at(at.p, static_cast<std::size_t>(limit - at.p)));
      at.end = turn(lane, at.to);
    }
  }

  // All lanes in turns until one of them ends; the others then go on alone. Behind every value eight more bytes can be
  // read. The cursors are four names, not an array: only so do they stay in registers.
  void together(Lane (&lanes)[kLanes]) const {
    Cursor a = enter(lanes[0]), b = enter(lanes[1]), c = enter(lanes[2]), d = enter(lanes[3]);
    bool all = a.end && b.end && c.end && d.end;
    while (all) {
      all = step(a, lanes[0]);
      all &= step(b, lanes[1]);
      all &= step(c, lanes[2]);
      all &= step(d, lanes[3]);
    }
    finish(a, lanes[0]);
    finish(b, lanes[1]);
    finish(c, lanes[2]);
    finish(d, lanes[3]);
  }
};

std::uint64_t fsst_encode(In<std::uint8_t> table, In<std::uint8_t> data, In<std::int64_t> offsets, Out<std::uint8_t> out,
                          Out<std::int64_t> out_offsets) {
  require(table.size() == kTableBytes, "a symbol table has 2312 bytes");
  require(offsets.size() > 0 && out_offsets.size() == offsets.size(), "one output offset per offset");
  nb::gil_scoped_release release;
  check_offsets(offsets, data.size());
  const std::size_t n = offsets.size() - 1;
  const std::int64_t* o = offsets.data();
  require(out.size() / 2 >= static_cast<std::size_t>(o[n] - o[0]), "output must have room for twice the input");
  Matcher matcher;
  const std::size_t count = table.data()[0];
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t length = table.data()[8 + 8 * count + i];
    require(length >= 1 && length <= 8, "a symbol has 1 to 8 bytes");
    require(matcher.add({low_bytes(load<std::uint64_t>(table.data() + 8 + 8 * i), length), length}), "two symbols share a slot");
  }
  std::int64_t* ends = out_offsets.data() + 1;
  const Compressor compressor{matcher, data.data(), data.data() + data.size(), o, ends};
  // Values that end at least eight bytes before the data does are read in whole words.
  const std::int64_t readable = static_cast<std::int64_t>(data.size()) - 8;
  const std::size_t whole = static_cast<std::size_t>(std::upper_bound(o + 1, o + n + 1, readable) - (o + 1));
  const std::size_t turns = whole >= kLanes * kLaneValues ? kLanes : 0;
  Lane lanes[kLanes], last;
  auto open = [&](std::size_t first, std::size_t stop) {
    std::uint8_t* to = out.data() + 2 * (o[first] - o[0]);
    return Lane{first, first, stop, to, to};
  };
  std::size_t done = 0;
  for (std::size_t k = 0; k < turns; ++k) {  // by bytes, and no lane without values
    const std::int64_t until = o[0] + (o[whole] - o[0]) / static_cast<std::int64_t>(turns) * static_cast<std::int64_t>(k + 1);
    const std::size_t most = whole - (turns - 1 - k);
    const std::size_t cut = static_cast<std::size_t>(std::lower_bound(o + done, o + whole, until) - o);
    const std::size_t stop = k + 1 == turns ? whole : std::min(std::max(cut, done + 1), most);
    lanes[k] = open(done, stop);
    done = stop;
  }
  if (turns) compressor.together(lanes);
  last = open(done, n);
  if (done < n) compressor.finish(compressor.enter(last), last);
  out_offsets.data()[0] = 0;
  std::int64_t at = 0;
  for (std::size_t k = 0; k <= turns; ++k) {
    const Lane& lane = k < turns ? lanes[k] : last;
    const std::int64_t size = lane.to - lane.begin;
    if (at && size) std::memmove(out.data() + at, lane.begin, static_cast<std::size_t>(size));
    for (std::size_t row = lane.first; row < lane.stop; ++row) ends[row] += at;
    at += size;
  }
  return static_cast<std::uint64_t>(at);
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
