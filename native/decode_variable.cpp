// Values of varying width: offsets and bytes, FSST, dictionary strings.
//
// Each function writes all offsets, writes the bytes as far as `out` has room, and returns how many bytes there
// are in all: a caller whose guess was too small asks again with the exact size. FSST stores eight bytes at a
// time, so it uses room for seven more bytes than it reports.
#include "decode_page.h"

namespace tiltyard {
namespace {

constexpr int64_t SYMBOLS = 256;
constexpr int64_t ESCAPE = 255;
constexpr uint8_t NO_SYMBOL = 0x80;   // in a length: the code has no symbol
constexpr int64_t TABLE_HEAD = 8;     // bytes before the symbols

struct SymbolTable {
  uint64_t symbol[SYMBOLS];
  uint8_t length[SYMBOLS];
  bool compressed = false;

  void parse(Span table) {
    require(table.size >= TABLE_HEAD, "symbol table without its header");
    const uint64_t head = load(table.data, 8);
    require(head >> 32 == 0x46535354, "symbol table without its magic");
    compressed = ((head >> 24) & 0xFF) != 0;
    if (!compressed) return;
    const int64_t n = int64_t(head & 0xFF);
    require(table.size >= TABLE_HEAD + 9 * n, "symbol table cut short");
    std::memset(symbol, 0, sizeof(symbol));
    std::memset(length, NO_SYMBOL, sizeof(length));
    for (int64_t i = 0; i < n; i++) {
      symbol[i] = load(table.data + TABLE_HEAD + 8 * i, 8);
      length[i] = table.data[TABLE_HEAD + 8 * n + i];
      require(length[i] >= 1 && length[i] <= 8, "symbol of an impossible length");
    }
  }

  // Decodes one value; bytes beyond `room` are counted, not written. Returns the new end of the output.
  int64_t decode(const uint8_t* p, const uint8_t* end, uint8_t* out, int64_t at, int64_t room) const {
    uint8_t seen = 0;
    while (end - p >= 4 && at + 32 <= room) {
      uint32_t four;
      std::memcpy(&four, p, 4);
      const uint32_t inverse = ~four;
      if ((inverse - 0x01010101u) & ~inverse & 0x80808080u) {  // one of the four is the escape
        if (*p == ESCAPE) {
          out[at++] = p[1];
          p += 2;
        } else {
          std::memcpy(out + at, &symbol[*p], 8);
          at += length[*p] & 15;
          seen |= length[*p++];
        }
        continue;
      }
      for (int k = 0; k < 4; k++) {
        const uint8_t c = p[k];
        std::memcpy(out + at, &symbol[c], 8);
        at += length[c] & 15;
        seen |= length[c];
      }
      p += 4;
    }
    while (p < end) {
      const uint8_t c = *p++;
      if (c == ESCAPE) {
        require(p < end, "compressed value ends in an escape");
        if (at < room) out[at] = *p;
        p++;
        at++;
        continue;
      }
      const int64_t n = length[c] & 15;
      if (at + 8 <= room) {
        std::memcpy(out + at, &symbol[c], 8);
      } else if (at < room) {
        std::memcpy(out + at, &symbol[c], size_t(std::min(n, room - at)));
      }
      at += n;
      seen |= length[c];
    }
    require(!(seen & NO_SYMBOL), "compressed value uses a code without symbol");
    return at;
  }
};

void put(uint8_t* out, int64_t at, int64_t room, const uint8_t* in, int64_t n) {
  if (n <= 16 && at + 16 <= room && n >= 0) {
    for (int64_t i = 0; i < n; i++) out[at + i] = in[i];
  } else if (n > 0 && at < room) {
    std::memcpy(out + at, in, size_t(std::min(n, room - at)));
  }
}

// Offsets of a chunk: `items` + 1 words of W at its start, relative to it.
template <typename W, typename T>
int64_t piece(Span in, int64_t items, int64_t lo, int64_t n, const SymbolTable* table, T* offsets, int64_t at,
              uint8_t* out, int64_t room) {
  require(items < in.size / int64_t(sizeof(W)), "offsets cut short");
  const uint8_t* words = in.data + lo * sizeof(W);
  auto offset = [&](int64_t i) {
    W v;
    std::memcpy(&v, words + i * sizeof(W), sizeof(W));
    return uint64_t(v);
  };
  const uint64_t begin = offset(0), end = offset(n);
  require(begin <= end && end <= uint64_t(in.size), "offsets outside of their chunk");
  if (!table) {
    uint64_t last = begin;
    bool ordered = true;
    for (int64_t i = 1; i <= n; i++) {
      const uint64_t next = offset(i);
      ordered &= last <= next;
      last = next;
      offsets[i] = T(at + int64_t(next - begin));
    }
    require(ordered, "offsets decrease");
    put(out, at, room, in.data + begin, int64_t(end - begin));
    return at + int64_t(end - begin);
  }
  uint64_t last = begin;
  for (int64_t i = 1; i <= n; i++) {
    const uint64_t next = offset(i);
    require(last <= next && next <= end, "offsets decrease");
    at = table->decode(in.data + last, in.data + next, out, at, room);
    offsets[i] = T(at);
    last = next;
  }
  return at;
}

// Appends the values of segments: offsets[1] to offsets[items], of which there is room for `slots`, and their bytes
// from `bytes` on, which grows. Returns the items.
template <typename T>
int64_t append(const Column& column, const Segments& segments, T* offsets, int64_t slots, uint8_t* out, int64_t room,
               int64_t& bytes) {
  SymbolTable table;
  int64_t table_page = -1;
  return for_pieces(column, segments, [&](const Chunk& chunk, int64_t lo, int64_t n, int64_t at) {
    require(n <= slots - at, "output smaller than the items that were asked for");
    const int64_t* p = column.page(chunk.page);
    T* to = offsets + at;
    switch (p[VALUE_CODEC]) {
      case VALUE_NONE:
        for (int64_t i = 1; i <= n; i++) to[i] = T(bytes);
        return;
      case VALUE_SCALAR: {
        Span value = Column::cut(column.side, p[SIDE_POS], p[SIDE_LEN], "scalar outside of its table");
        require(value.size == 0 || n <= (int64_t(1) << 60) / value.size, "scalars beyond any size");
        for (int64_t i = 1; i <= n; i++) {
          put(out, bytes, room, value.data, value.size);
          bytes += value.size;
          to[i] = T(bytes);
        }
        return;
      }
      case VALUE_FSST:
        if (table_page != chunk.page) {
          table.parse(Column::cut(column.side, p[SIDE_POS], p[SIDE_LEN], "symbol table outside of its table"));
          table_page = chunk.page;
        }
        break;
      case VALUE_VARIABLE: break;
      default: fail("value encoding that has no varying width");
    }
    require(p[KIND] == MINI_BLOCK && p[BUFFERS] >= 1, "strings in a page without value buffer");
    const SymbolTable* symbols = p[VALUE_CODEC] == VALUE_FSST && table.compressed ? &table : nullptr;
    bytes = p[OFFSET_BITS] == 64
                ? piece<uint64_t, T>(chunk.value[0], chunk.items, lo, n, symbols, to, bytes, out, room)
                : piece<uint32_t, T>(chunk.value[0], chunk.items, lo, n, symbols, to, bytes, out, room);
  });
}

template <typename T>
int64_t variable(In<uint8_t> src, In<uint8_t> aux, In<int64_t> staged, In<uint8_t> side, In<int64_t> pages,
                 In<int64_t> first, In<int64_t> chunks, In<int64_t> start, In<int64_t> count, Out<T> offsets_,
                 Out<uint8_t> out_) {
  Column column(src, aux, staged, side, pages, first, chunks);
  Segments segments(start, count);
  T* offsets = offsets_.data();
  uint8_t* out = out_.data();
  const int64_t slots = int64_t(offsets_.size()) - 1, room = int64_t(out_.size());
  require(slots >= 0, "no room for offsets");
  nb::gil_scoped_release release;
  int64_t bytes = 0;
  offsets[0] = 0;
  append(column, segments, offsets, slots, out, room, bytes);
  return bytes;
}

// One column of many files: segment i is of tables[i].
template <typename T>
int64_t variable_columns(nb::tuple tables, In<int64_t> start, In<int64_t> count, Out<T> offsets_, Out<uint8_t> out_) {
  std::vector<const Column*> columns;
  for (nb::handle each : tables) columns.push_back(&nb::cast<const ColumnTables&>(each).column);
  const Segments segments(start, count);
  require(segments.count && segments.size == int64_t(columns.size()), "segments and columns differ in number");
  T* offsets = offsets_.data();
  uint8_t* out = out_.data();
  const int64_t slots = int64_t(offsets_.size()) - 1, room = int64_t(out_.size());
  require(slots >= 0, "no room for offsets");
  nb::gil_scoped_release release;
  int64_t bytes = 0, at = 0;
  offsets[0] = 0;
  for (int64_t i = 0; i < segments.size; i++)
    at += append(*columns[size_t(i)], segments.part(i, i + 1), offsets + at, slots - at, out, room, bytes);
  return bytes;
}

// Values at given positions and lengths; page_of names the symbol table of each, if there are any.
template <typename T>
int64_t gather_variable(In<uint8_t> src_, In<int64_t> position, In<int64_t> length, In<int64_t> page_of,
                        In<uint8_t> side_, In<int64_t> pages, Out<T> offsets_, Out<uint8_t> out_) {
  const Span src{src_.data(), int64_t(src_.size())}, side{side_.data(), int64_t(side_.size())};
  const int64_t n = int64_t(position.size()), num_pages = int64_t(pages.size()) / PAGE_FIELDS;
  require(int64_t(length.size()) == n, "positions and lengths differ in number");
  require(page_of.size() == 0 || int64_t(page_of.size()) == n, "positions and pages differ in number");
  require(int64_t(offsets_.size()) > n, "no room for offsets");
  const int64_t *pos = position.data(), *len = length.data();
  const int64_t* page = page_of.size() ? page_of.data() : nullptr;
  const int64_t* facts = pages.data();
  T* offsets = offsets_.data();
  uint8_t* out = out_.data();
  const int64_t room = int64_t(out_.size());
  nb::gil_scoped_release release;
  SymbolTable table;
  int64_t table_page = -1, bytes = 0;
  offsets[0] = 0;
  for (int64_t i = 0; i < n; i++) {
    const Span value = len[i] == 0 ? Span{} : Column::cut(src, pos[i], len[i], "value outside of the file");
    const SymbolTable* symbols = nullptr;
    if (page && value.size) {
      require(page[i] >= 0 && page[i] < num_pages, "value of a page that does not exist");
      const int64_t* p = facts + page[i] * PAGE_FIELDS;
      if (p[VALUE_CODEC] == VALUE_FSST) {
        if (page[i] != table_page) {
          table.parse(Column::cut(side, p[SIDE_POS], p[SIDE_LEN], "symbol table outside of its table"));
          table_page = page[i];
        }
        if (table.compressed) symbols = &table;
      }
    }
    if (symbols) {
      bytes = symbols->decode(value.data, value.data + value.size, out, bytes, room);
    } else {
      put(out, bytes, room, value.data, value.size);
      bytes += value.size;
    }
    offsets[i + 1] = T(bytes);
  }
  return bytes;
}

// Strings by index from a dictionary of offsets and bytes.
template <typename T>
int64_t gather_strings(In<uint32_t> index_, In<int64_t> dict_offsets, In<uint8_t> dict, Out<T> offsets_,
                       Out<uint8_t> out_) {
  const int64_t n = int64_t(index_.size()), items = int64_t(dict_offsets.size()) - 1;
  const int64_t size = int64_t(dict.size()), room = int64_t(out_.size());
  require(items >= 0 && int64_t(offsets_.size()) > n, "no room for offsets");
  const uint32_t* index = index_.data();
  const int64_t* from = dict_offsets.data();
  const uint8_t* in = dict.data();
  T* offsets = offsets_.data();
  uint8_t* out = out_.data();
  nb::gil_scoped_release release;
  for (int64_t i = 0; i < items; i++)
    require(from[i] >= 0 && from[i] <= from[i + 1] && from[i + 1] <= size, "dictionary offsets out of bounds");
  int64_t at = 0;
  offsets[0] = 0;
  for (int64_t i = 0; i < n; i++) {
    require(index[i] < items, "dictionary index outside of its dictionary");
    const int64_t begin = from[index[i]], length = from[index[i] + 1] - begin;
    if (length <= 16 && at + 16 <= room && begin + 16 <= size) {
      std::memcpy(out + at, in + begin, 16);
    } else if (at < room) {
      std::memcpy(out + at, in + begin, size_t(std::min(length, room - at)));
    }
    at += length;
    offsets[i + 1] = T(at);
  }
  return at;
}

}  // namespace

void register_variable(nb::module_& m) {
  m.def("variable", &variable<int32_t>);
  m.def("variable", &variable<int64_t>);
  m.def("variable_columns", &variable_columns<int32_t>);
  m.def("variable_columns", &variable_columns<int64_t>);
  m.def("gather_variable", &gather_variable<int32_t>);
  m.def("gather_variable", &gather_variable<int64_t>);
  m.def("gather_strings", &gather_strings<int32_t>);
  m.def("gather_strings", &gather_strings<int64_t>);
}

}  // namespace tiltyard
