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

inline uint64_t load(const uint8_t* p, int bytes) {
  uint64_t v = 0;
  std::memcpy(&v, p, bytes);
  return v;
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

// Rows or items that are wanted: starts with counts, or starts alone (one each).
struct Segments {
  const int64_t* start;
  const int64_t* count;
  int64_t size;

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
void check_level_count(int64_t codec, Span in, int64_t count);
void map_levels(const Column& column, const int64_t* page, uint16_t* levels, int64_t n);

void register_fixed(nb::module_& m);
void register_variable(nb::module_& m);
void register_levels(nb::module_& m);
void register_full_zip(nb::module_& m);

}  // namespace tiltyard
