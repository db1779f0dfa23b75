// Where things lie: the chunk tables of a column, and the buffers inside of its chunks.
#include "decode_page.h"

namespace tiltyard {
namespace {

// Where the buffers of chunks lie: per chunk levels, then (position, size) of rep, def and each value buffer.
void chunk_buffers(In<uint8_t> src, In<uint8_t> side, In<int64_t> pages, In<int64_t> first, In<int64_t> chunks,
                   In<int64_t> wanted, int64_t buffers, Out<int64_t> out) {
  In<uint8_t> no_bytes;
  In<int64_t> no_staged;
  Column column(src, no_bytes, no_staged, side, pages, first, chunks);
  require(buffers >= 0 && buffers <= MAX_BUFFERS, "too many value buffers in a chunk");
  const int64_t fields = 1 + 2 * (2 + buffers), n = int64_t(wanted.size());
  require(n * fields <= int64_t(out.size()), "output smaller than the chunks that were asked for");
  const int64_t* w = wanted.data();
  int64_t* o = out.data();
  nb::gil_scoped_release release;
  Chunk chunk;
  for (int64_t i = 0; i < n; i++, o += fields) {
    column.open(w[i], chunk);
    const int64_t have = column.page(chunk.page)[KIND] == MINI_BLOCK ? column.page(chunk.page)[BUFFERS] : 0;
    o[0] = chunk.levels;
    auto put = [&](int64_t slot, Span s) {
      o[1 + 2 * slot] = s.data ? int64_t(s.data - column.src.data) : -1;
      o[2 + 2 * slot] = s.size;
    };
    put(0, chunk.rep);
    put(1, chunk.def);
    for (int64_t b = 0; b < buffers; b++) put(2 + b, b < have ? chunk.value[b] : Span{});
  }
}

// The chunk tables of a column. Per page (PLACE_FIELDS numbers): chunk words (position, bytes, bytes of a word; 0:
// the page is one chunk), chunks (position, bytes), items, rows, repetition index (position or -1, bytes).
constexpr int64_t PLACE_FIELDS = 9;
constexpr int64_t MAX_COUNT = int64_t(1) << 48;  // items or rows of a page

int64_t index_chunks(In<uint8_t> src_, In<int64_t> places_, Out<int64_t> first_, Out<int64_t> started_,
                     Out<int64_t> chunks_) {
  const Span src{src_.data(), int64_t(src_.size())};
  const int64_t num_pages = int64_t(places_.size()) / PLACE_FIELDS, room = int64_t(chunks_.size()) / CHUNK_FIELDS;
  require(int64_t(places_.size()) == num_pages * PLACE_FIELDS, "place table: wrong size");
  require(int64_t(first_.size()) > room && int64_t(started_.size()) > room, "chunk outputs differ in size");
  const int64_t* place = places_.data();
  int64_t *first = first_.data(), *started = started_.data(), *chunks = chunks_.data();
  nb::gil_scoped_release release;
  int64_t c = 0, item = 0, row = 0;
  first[0] = started[0] = 0;
  auto add = [&](int64_t position, int64_t size, int64_t page, int64_t items, int64_t rows) {
    require(c < room, "more chunks than there is room for");
    chunks[c * CHUNK_FIELDS] = position;
    chunks[c * CHUNK_FIELDS + 1] = size;
    chunks[c * CHUNK_FIELDS + 2] = page;
    c++;
    first[c] = item += items;
    started[c] = row += rows;
  };
  for (int64_t p = 0; p < num_pages; p++, place += PLACE_FIELDS) {
    const int64_t width = place[2], items = place[5], rows = place[6];
    require(items >= 0 && items <= MAX_COUNT && rows >= 0 && rows <= MAX_COUNT && item <= MAX_COUNT && row <= MAX_COUNT,
            "page of more items than any file holds");
    if (width == 0) {
      add(0, 0, p, items, rows);
      continue;
    }
    require(width == 2 || width == 4, "chunk words of an impossible width");
    const Span words = Column::cut(src, place[0], place[1], "chunk words outside of the file");
    const int64_t n = words.size / width;
    require(n > 0 && n * width == words.size, "chunk words cut short");
    const Span data = Column::cut(src, place[3], place[4], "chunks outside of the file");
    Span index;
    if (place[7] >= 0) {
      index = Column::cut(src, place[7], place[8], "repetition index outside of the file");
      require(index.size == 16 * n, "repetition index and chunks differ in number");
    } else {
      require(items == rows, "a page without lists of other items than rows");
    }
    int64_t at = 0, left = items, rows_left = rows, begun = 0;
    for (int64_t k = 0; k < n; k++) {
      const uint64_t word = load(words.data + k * width, int(width));
      const int64_t size = (int64_t(word >> 4) + 1) * 8;
      const int64_t m = k + 1 < n ? int64_t(1) << (word & 15) : left;
      require(size <= data.size - at, "chunks longer than their buffer");
      require(m <= left, "chunks of more items than their page");
      int64_t starts = m;
      if (index.data) {
        const uint64_t ended = load(index.data + 16 * k, 8), over = load(index.data + 16 * k + 8, 8);
        require(ended <= uint64_t(rows_left), "repetition index of more rows than its page");
        rows_left -= int64_t(ended);
        starts = int64_t(ended) - begun + (over > 0);
        begun = over > 0;
        require(starts >= 0, "repetition index in which a row never ends");
      }
      add(place[3] + at, size, p, m, starts);
      at += size;
      left -= m;
    }
    require(!index.data || (rows_left == 0 && !begun), "repetition index of other rows than its page");
  }
  return c;
}

}  // namespace

void register_chunks(nb::module_& m) {
  m.def("index_chunks", &index_chunks);
  nb::class_<ColumnTables>(m, "ColumnTables")
      .def(nb::init<In<uint8_t>, In<uint8_t>, In<int64_t>, In<int64_t>, In<int64_t>>());
  m.def("chunk_buffers", &chunk_buffers);
}

}  // namespace tiltyard
