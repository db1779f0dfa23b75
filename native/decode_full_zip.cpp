// Full-zip pages: control word, length and value of each entry side by side.
#include "decode_page.h"

namespace tiltyard {
namespace {

// Walks the entries of rows. Writes as many as fit; returns (entries, values). `row_first[p]` is the first row
// of page p. Each value that owns a slot gets position, length and page; a null of varying width has length 0.
nb::tuple zip_rows(In<uint8_t> src_, In<uint8_t> side, In<int64_t> pages, In<int64_t> row_first, In<int64_t> start,
                   In<int64_t> count, Out<uint16_t> rep_, Out<uint16_t> def_, Out<int64_t> position,
                   Out<int64_t> length, Out<int64_t> page_of) {
  In<uint8_t> no_bytes;
  In<int64_t> none;
  int64_t no_items = 0;
  size_t one[1] = {1};
  In<int64_t> first(&no_items, 1, one);
  Column column(src_, no_bytes, none, side, pages, first, none);
  Segments segments(start, count);
  const int64_t num_pages = column.num_pages;
  require(int64_t(row_first.size()) == num_pages + 1, "row table: wrong size");
  require(rep_.size() == def_.size(), "outputs of levels differ in size");
  require(position.size() == length.size() && position.size() == page_of.size(), "outputs of values differ in size");
  const int64_t* rows = row_first.data();
  const int64_t room = int64_t(rep_.size()), value_room = int64_t(position.size());
  uint16_t *rep_out = rep_.data(), *def_out = def_.data();
  int64_t *pos_out = position.data(), *len_out = length.data(), *page_out = page_of.data();
  int64_t entries = 0, values = 0;
  {
    nb::gil_scoped_release release;
    for (int64_t s = 0; s < segments.size; s++) {
      int64_t r = segments.start[s], n = segments.n(s);
      require(r >= 0 && n >= 0 && r <= rows[num_pages] && n <= rows[num_pages] - r, "rows outside of the column");
      while (n > 0) {
        const int64_t at = int64_t(std::upper_bound(rows, rows + num_pages + 1, r) - rows) - 1;
        require(at >= 0 && at < num_pages && rows[at + 1] > r, "row that no page holds");
        const int64_t* p = column.page(at);
        const int64_t m = std::min(n, rows[at + 1] - r), lo = r - rows[at];
        const int64_t control = p[CONTROL_BYTES], rep_bits = p[CONTROL_REP_BITS], def_bits = p[CONTROL_DEF_BITS];
        const int64_t fixed = p[OFFSET_BITS] == 0 ? p[STRIDE] : -1;
        const int64_t prefix = p[OFFSET_BITS] / 8;
        require(control >= 0 && control <= 4 && rep_bits >= 0 && rep_bits <= 16 && def_bits >= 0 && def_bits <= 16 &&
                    rep_bits + def_bits <= control * 8,
                "control words out of bounds");
        require(fixed > 0 || prefix == 4 || prefix == 8, "full-zip values of an impossible width");
        Span data = Column::cut(column.src, p[DATA_POS], p[DATA_SIZE], "page buffer outside of the file");
        require(fixed <= data.size, "full-zip page cut short");
        int64_t from, to;
        if (p[INDEX_WIDTH]) {
          const int64_t width = p[INDEX_WIDTH];
          require(width == 1 || width == 2 || width == 4 || width == 8, "repetition index of an impossible width");
          require(p[ROWS] >= 0 && p[ROWS] < (int64_t(1) << 56) && lo + m <= p[ROWS], "row outside of its page");
          Span index = Column::cut(column.src, p[INDEX_POS], width * (p[ROWS] + 1), "repetition index outside of the file");
          const uint64_t a = load(index.data + lo * width, int(width)), b = load(index.data + (lo + m) * width, int(width));
          require(a <= b && b <= uint64_t(data.size), "repetition index points outside of its page");
          from = int64_t(a), to = int64_t(b);
        } else {
          require(fixed > 0 && rep_bits == 0, "page without the repetition index that it needs");
          const int64_t stride = control + fixed;
          require(lo + m <= data.size / stride, "full-zip page cut short");
          from = lo * stride, to = (lo + m) * stride;
        }
        const uint64_t def_mask = (uint64_t(1) << def_bits) - 1, rep_mask = (uint64_t(1) << rep_bits) - 1;
        const int64_t visible = p[VISIBLE], base = data.data - column.src.data;
        Span lut = Column::cut(column.side, p[LUT_POS], p[LUT_LEN], "level map outside of its table");
        while (from < to) {
          require(control <= to - from, "control word outside of its row");
          const uint64_t word = load(data.data + from, int(control));
          from += control;
          const int64_t def = int64_t(word & def_mask);
          const uint16_t rep = uint16_t((word >> def_bits) & rep_mask);
          require(2 * def + 2 <= lut.size, "level that no layer of the page has");
          if (entries < room) {
            rep_out[entries] = rep;
            std::memcpy(&def_out[entries], lut.data + 2 * def, 2);
          }
          entries++;
          if (def > visible) continue;
          int64_t size = 0;
          if (fixed > 0) {
            size = fixed;
          } else if (def == 0) {
            require(prefix <= to - from, "value length outside of its row");
            const uint64_t stated = load(data.data + from, int(prefix));
            from += prefix;
            require(stated <= uint64_t(to - from), "value outside of its row");
            size = int64_t(stated);
          }
          require(size <= to - from, "value outside of its row");
          if (values < value_room) {
            pos_out[values] = base + from;
            len_out[values] = size;
            page_out[values] = at;
          }
          values++;
          from += size;
        }
        r += m;
        n -= m;
      }
    }
  }
  return nb::make_tuple(entries, values);
}

}  // namespace

void register_full_zip(nb::module_& m) { m.def("zip_rows", &zip_rows); }

}  // namespace tiltyard
