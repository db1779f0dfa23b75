// What the reading kernels know about a column: its pages, its chunks, and where a chunk's buffers lie.
//
// A page is one row of int64 fields (PageField), written by tiltyard/encoding/program.py under the same names. All
// positions are absolute in `src`, the bytes of the whole file; `aux` holds buffers that Python decompressed
// and `side` small facts of pages (symbol tables, constants, maps of definition levels). Nothing in these
// arrays is trusted: each position is checked against the size of its buffer where it is used.
#pragma once

#include <algorithm>
#include <vector>

#include "common.h"

namespace tiltyard {

enum PageField {
  KIND, LARGE, REP_CODEC, REP_BITS, DEF_CODEC, DEF_BITS, BUFFERS, VALUE_CODEC,
  VALUE_BITS, OFFSET_BITS, DICT_BASE, DICT_ITEMS, CONTROL_BYTES, CONTROL_REP_BITS, CONTROL_DEF_BITS, VISIBLE,
  SIDE_POS, SIDE_LEN, LUT_POS, LUT_LEN, REP_POS, REP_SIZE, DEF_POS, DEF_SIZE,
  LEVELS, INDEX_POS, INDEX_WIDTH, DATA_POS, DATA_SIZE, ROWS, MAX_REP, DEFAULT_DEF,
  BUFFER, STRIDE, WITHIN,
  PAGE_FIELDS
};

enum Kind { MINI_BLOCK = 0, FULL_ZIP = 1, CONSTANT = 2 };
enum LevelCodec { LEVEL_NONE = 0, LEVEL_FLAT = 1, LEVEL_INLINE = 2, LEVEL_OUT_OF_LINE = 3, LEVEL_RLE = 4 };
enum ValueCodec {
  VALUE_NONE = 0, VALUE_FLAT = 1, VALUE_INLINE = 2, VALUE_RLE = 3, VALUE_BSS = 4,
  VALUE_VARIABLE = 5, VALUE_FSST = 6, VALUE_SCALAR = 7, VALUE_ONES = 8
};

constexpr int64_t BLOCK = 1024;         // values of a FastLanes block
constexpr int64_t MAX_BUFFERS = 16;     // value buffers of a chunk
constexpr int64_t STAGED_FIELDS = 6;    // per chunk: position and size in `aux` of rep, def, value buffer 0
constexpr int64_t CHUNK_FIELDS = 3;     // per chunk: position, size, page
constexpr int64_t MAX_RUN = 255;        // length of a run
constexpr int64_t AHEAD = 32;           // rows of a take whose bytes are asked for at once

struct Span {
  const uint8_t* data = nullptr;
  int64_t size = 0;
};

struct Chunk {
  int64_t page = 0;
  int64_t items = 0;
  int64_t levels = 0;
  Span rep, def;
  Span value[MAX_BUFFERS];
};

template <typename T>
inline uint64_t load_word(const uint8_t* p) {
  T v;
  std::memcpy(&v, p, sizeof(T));
  return v;
}

inline uint64_t load(const uint8_t* p, int bytes) {
  switch (bytes) {  // sizes that the compiler knows are one instruction, others a call
    case 1: return *p;
    case 2: return load_word<uint16_t>(p);
    case 4: return load_word<uint32_t>(p);
    case 8: return load_word<uint64_t>(p);
  }
  uint64_t v = 0;
  std::memcpy(&v, p, size_t(bytes));
  return v;
}

// Asks for a cache line. An address outside of the span is left alone, an address is never read.
inline void fetch(Span in, int64_t at) {
  if (at >= 0 && at < in.size) __builtin_prefetch(in.data + at);
}

// Where in a FastLanes block of words of `bits` bits the value at `index` begins: word and shift.
struct PackedPlace {
  int64_t word;
  int shift;
};
inline PackedPlace packed_place(int bits, int width, int64_t index) {
  constexpr int ORDER[8] = {0, 4, 2, 6, 1, 5, 3, 7};
  const int log = __builtin_ctz(unsigned(bits)), lanes = int(BLOCK) >> log;
  const int within = int(index & 127), lane = within & (lanes - 1);
  const int row = 8 * ORDER[(within - lane) >> 4] + int(index >> 7);
  const int bit = row * width;
  return {int64_t(bit >> log) * lanes + lane, bit & (bits - 1)};
}

struct Column {
  Span src, aux, side;
  const int64_t* staged = nullptr;
  const int64_t* pages = nullptr;
  const int64_t* first = nullptr;
  const int64_t* chunks = nullptr;
  int64_t num_pages = 0, num_chunks = 0;

  Column(In<uint8_t> src_, In<uint8_t> aux_, In<int64_t> staged_, In<uint8_t> side_, In<int64_t> pages_,
         In<int64_t> first_, In<int64_t> chunks_) {
    src = {src_.data(), int64_t(src_.size())};
    aux = {aux_.data(), int64_t(aux_.size())};
    side = {side_.data(), int64_t(side_.size())};
    pages = pages_.data();
    num_pages = int64_t(pages_.size()) / PAGE_FIELDS;
    first = first_.data();
    chunks = chunks_.data();
    num_chunks = int64_t(chunks_.size()) / CHUNK_FIELDS;
    require(int64_t(pages_.size()) == num_pages * PAGE_FIELDS, "page table: wrong size");
    require(int64_t(chunks_.size()) == num_chunks * CHUNK_FIELDS, "chunk table: wrong size");
    require(int64_t(first_.size()) == num_chunks + 1, "chunk table: first items and chunks differ in number");
    if (staged_.size() != 0) {
      require(int64_t(staged_.size()) == num_chunks * STAGED_FIELDS, "staged table: wrong size");
      staged = staged_.data();
    }
  }

  const int64_t* page(int64_t p) const {
    require(p >= 0 && p < num_pages, "chunk names a page that does not exist");
    return pages + p * PAGE_FIELDS;
  }

  static Span cut(Span whole, int64_t pos, int64_t size, const char* what) {
    require(pos >= 0 && size >= 0 && pos <= whole.size && size <= whole.size - pos, what);
    return {whole.data + pos, size};
  }

  // The chunk that holds item i: the last c with first[c] <= i. `near` is tried first.
  int64_t find(int64_t i, int64_t near) const {
    if (near < num_chunks && first[near] <= i && i < first[near + 1]) return near;
    if (near + 1 < num_chunks && first[near + 1] <= i && i < first[near + 2]) return near + 1;
    int64_t c = int64_t(std::upper_bound(first, first + num_chunks + 1, i) - first) - 1;
    require(c >= 0 && c < num_chunks && first[c] <= i && i < first[c + 1], "item outside of the column");
    return c;
  }

  // Asks for what single items will read: chunk headers, then values, then the bytes of strings. Rows of a take lie
  // anywhere in the file; waiting for their memory one after the other would be nearly all of the work.
  void fetch_items(const int64_t* items, int64_t n, int64_t near) const {
    const int64_t total = first[num_chunks];
    int64_t where[AHEAD];
    Span text[AHEAD];
    int64_t offset[AHEAD];
    for (int64_t i = 0; i < n; i++) {
      require(items[i] >= 0 && items[i] < total, "items outside of the column");
      where[i] = near = find(items[i], near);
      fetch(src, chunks[near * CHUNK_FIELDS]);
    }
    Chunk chunk;
    int64_t opened = -1, strings = 0;
    for (int64_t i = 0; i < n; i++) {
      const int64_t c = where[i];
      if (c != opened) open(opened = c, chunk);
      const int64_t* p = page(chunk.page);
      const int64_t lo = items[i] - first[c], bits = p[VALUE_BITS], buffer = p[BUFFER];
      if (p[KIND] != MINI_BLOCK || buffer < 0 || buffer >= p[BUFFERS]) continue;
      const Span in = chunk.value[buffer];
      switch (p[VALUE_CODEC]) {
        case VALUE_FLAT:
          if (bits > 0 && lo < in.size * 8 / bits) fetch(in, lo * bits / 8);
          break;
        case VALUE_INLINE: {
          if ((bits != 8 && bits != 16 && bits != 32 && bits != 64) || in.size < bits / 8 || lo >= BLOCK) break;
          const int word = int(bits / 8);
          const uint64_t width = load(in.data, word);
          if (width > uint64_t(bits)) break;
          const PackedPlace at = packed_place(int(bits), int(width), lo);
          fetch(in, word + at.word * word);
          if (at.shift + int64_t(width) > bits) fetch(in, word + at.word * word + 128);
          break;
        }
        case VALUE_VARIABLE:
        case VALUE_FSST:
          text[strings] = in;
          offset[strings] = lo * (p[OFFSET_BITS] == 64 ? 8 : 4);
          fetch(in, offset[strings++]);
          break;
        default: break;
      }
    }
    for (int64_t i = 0; i < strings; i++)
      if (offset[i] <= text[i].size - 4) fetch(text[i], int64_t(load(text[i].data + offset[i], 4)));
  }

  void open(int64_t c, Chunk& out) const {
    require(c >= 0 && c < num_chunks, "chunk outside of the column");
    const int64_t* entry = chunks + c * CHUNK_FIELDS;
    const int64_t* p = page(entry[2]);
    out.page = entry[2];
    out.items = first[c + 1] - first[c];
    out.rep = out.def = Span{};
    require(out.items >= 0, "chunk table: items decrease");
    if (p[KIND] == MINI_BLOCK) {
      open_mini(p, entry[0], entry[1], out);
    } else {
      out.levels = p[LEVELS];
      if (p[REP_CODEC]) out.rep = cut(src, p[REP_POS], p[REP_SIZE], "repetition levels outside of the file");
      if (p[DEF_CODEC]) out.def = cut(src, p[DEF_POS], p[DEF_SIZE], "definition levels outside of the file");
    }
    if (staged) {
      const int64_t* s = staged + c * STAGED_FIELDS;
      if (s[0] >= 0) out.rep = cut(aux, s[0], s[1], "staged repetition levels");
      if (s[2] >= 0) out.def = cut(aux, s[2], s[3], "staged definition levels");
      if (s[4] >= 0) out.value[0] = cut(aux, s[4], s[5], "staged values");
    }
  }

 private:
  void open_mini(const int64_t* p, int64_t pos, int64_t size, Chunk& out) const {
    Span chunk = cut(src, pos, size, "chunk outside of the file");
    const int64_t buffers = p[BUFFERS];
    const int wide = p[LARGE] ? 4 : 2;
    require(buffers >= 0 && buffers <= MAX_BUFFERS, "too many value buffers in a chunk");
    int64_t head = 2 + (p[REP_CODEC] ? 2 : 0) + (p[DEF_CODEC] ? 2 : 0) + buffers * wide;
    require(head <= chunk.size, "chunk shorter than its header");
    const uint8_t* h = chunk.data;
    out.levels = int64_t(load(h, 2));
    h += 2;
    int64_t rep_size = 0, def_size = 0;
    if (p[REP_CODEC]) { rep_size = int64_t(load(h, 2)); h += 2; }
    if (p[DEF_CODEC]) { def_size = int64_t(load(h, 2)); h += 2; }
    int64_t at = (head + 7) & ~int64_t(7);
    auto next = [&](int64_t bytes) {
      Span s = cut(chunk, at, bytes, "chunk buffer outside of its chunk");
      at += (bytes + 7) & ~int64_t(7);
      return s;
    };
    if (p[REP_CODEC]) out.rep = next(rep_size);
    if (p[DEF_CODEC]) out.def = next(def_size);
    for (int64_t b = 0; b < buffers; b++) {
      int64_t bytes = int64_t(load(h, wide));
      h += wide;
      out.value[b] = next(bytes);
    }
  }
};

// The arrays of a column, checked once and kept: for a few rows that is most of what a call costs.
struct ColumnTables {
  In<uint8_t> src, side;
  In<int64_t> pages, first, chunks;
  Column column;

  ColumnTables(In<uint8_t> src_, In<uint8_t> side_, In<int64_t> pages_, In<int64_t> first_, In<int64_t> chunks_)
      : src(src_), side(side_), pages(pages_), first(first_), chunks(chunks_),
        column(src_, In<uint8_t>(), In<int64_t>(), side_, pages_, first_, chunks_) {}
};

// Rows or items that are wanted: starts with counts, or starts alone (one each).
struct Segments {
  const int64_t* start;
  const int64_t* count;
  int64_t size;

  // Numbers low to high of the same.
  Segments part(int64_t low, int64_t high) const {
    require(low >= 0 && low <= high && high <= size, "job outside of the segments");
    return {start + low, count ? count + low : nullptr, high - low};
  }

  Segments(const int64_t* start_, const int64_t* count_, int64_t size_) : start(start_), count(count_), size(size_) {}
  Segments(In<int64_t> start_, In<int64_t> count_) {
    start = start_.data();
    size = int64_t(start_.size());
    count = count_.size() ? count_.data() : nullptr;
    require(!count || int64_t(count_.size()) == size, "segments: starts and counts differ in number");
  }
  int64_t n(int64_t s) const { return count ? count[s] : 1; }
};

// Calls visit(chunk, lo, n, out) for each piece of each segment that lies in one chunk.
template <typename Visit>
int64_t for_pieces(const Column& column, const Segments& segments, Visit visit) {
  Chunk chunk;
  int64_t at = 0, c = 0, opened = -1;
  const int64_t total = column.first[column.num_chunks];
  for (int64_t s = 0; s < segments.size; s++) {
    if (!segments.count && s % AHEAD == 0 && segments.size > 1)
      column.fetch_items(segments.start + s, std::min(AHEAD, segments.size - s), c);
    int64_t i = segments.start[s], n = segments.n(s);
    require(i >= 0 && n >= 0 && i <= total && n <= total - i, "items outside of the column");
    while (n > 0) {
      c = column.find(i, c);
      if (c != opened) {
        column.open(c, chunk);
        opened = c;
      }
      int64_t lo = i - column.first[c];
      int64_t m = std::min(n, chunk.items - lo);
      visit(chunk, lo, m, at);
      at += m;
      i += m;
      n -= m;
    }
  }
  return at;
}

// -- shared by the files of this module ----------------------------------------------------------

void unpack_block(int bits, const uint8_t* packed, int width, void* out);         // 1024 values
uint64_t unpack_one(int bits, const uint8_t* packed, int width, int64_t index);
void decode_levels(int64_t codec, int64_t bits, Span in, int64_t count, int64_t lo, int64_t n, uint16_t* out);
void check_level_count(int64_t codec, int64_t bits, Span in, int64_t count);
void map_levels(const Column& column, const int64_t* page, uint16_t* levels, int64_t n);

// One piece of one page of values of constant width into `base` at item `at`, all of `bits` bits.
void fixed_piece(const Column& column, const Chunk& chunk, int64_t bits, int64_t lo, int64_t n, uint8_t* base,
                 int64_t at);

void register_chunks(nb::module_& m);
void register_fixed(nb::module_& m);
void register_within(nb::module_& m);
void register_variable(nb::module_& m);
void register_levels(nb::module_& m);
void register_full_zip(nb::module_& m);

}  // namespace tiltyard
