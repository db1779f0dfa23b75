// Repetition and definition levels: unpacking, finding rows, and turning levels into offsets and validity.
//
// Column-wide level numbers (file-format.md section 6.2 with every layer declared in its most general form):
// an item layer has one level, a list layer two (null, then empty). Pages that declare fewer are mapped.
#include "decode_page.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tiltyard {
namespace {

constexpr int GROUP = 16;             // levels that are looked at together, one bit each
constexpr int64_t COUNTED = 1 << 14;  // levels counted in 16 bits
constexpr int64_t MAX_CHUNK_LEVELS = 0xFFFF;  // what the header of a chunk can say

// Bit i: v[i] <= most.
inline unsigned at_most(const uint16_t* v, uint16_t most) {
#if defined(__SSE2__)
  const __m128i limit = _mm_set1_epi16(int16_t(most)), zero = _mm_setzero_si128();
  const __m128i* p = reinterpret_cast<const __m128i*>(v);
  const __m128i a = _mm_cmpeq_epi16(_mm_subs_epu16(_mm_loadu_si128(p), limit), zero);
  const __m128i b = _mm_cmpeq_epi16(_mm_subs_epu16(_mm_loadu_si128(p + 1), limit), zero);
  return unsigned(_mm_movemask_epi8(_mm_packs_epi16(a, b)));
#else
  unsigned bits = 0;
  for (int i = 0; i < GROUP; i++) bits |= unsigned(v[i] <= most) << i;
  return bits;
#endif
}

TY_CLONES int64_t count_at_most(const uint16_t* v, int64_t n, uint16_t most) {
  int64_t total = 0;
  for (int64_t from = 0; from < n; from += COUNTED) {
    const int64_t to = std::min(n, from + COUNTED);
    uint16_t part = 0;
    for (int64_t i = from; i < to; i++) part = uint16_t(part + (v[i] <= most));
    total += part;
  }
  return total;
}

TY_CLONES uint16_t greatest(const uint16_t* v, int64_t n) {
  uint16_t worst = 0;
  for (int64_t i = 0; i < n; i++) worst = std::max(worst, v[i]);
  return worst;
}

// Bits set among 16; the instruction for it is not on every machine.
inline int ones(unsigned v) {
  v -= (v >> 1) & 0x5555;
  v = (v & 0x3333) + ((v >> 2) & 0x3333);
  v = (v + (v >> 4)) & 0x0F0F;
  return int((v + (v >> 8)) & 0x1F);
}

// Appends bits to a bitmap that has room for `room` of them; the rest of the last byte becomes zero.
struct BitWriter {
  uint8_t* out;
  int64_t room;
  int64_t size = 0;
  uint64_t held = 0;

  void append(uint64_t bits, int n) {  // n <= 16, no bit above n
    require(n <= room - size, "bitmap smaller than its layer");
    const int fill = int(size & 31);
    held |= bits << fill;
    size += n;
    if (fill + n >= 32) {
      const uint32_t word = uint32_t(held);
      std::memcpy(out + (size - (size & 31)) / 8 - 4, &word, 4);
      held >>= 32;
    }
  }
  void finish() {
    for (int64_t at = size & ~int64_t(31); at < size; at += 8, held >>= 8) out[at / 8] = uint8_t(held);
  }
};

// The bits of `bits` at the places of `kept`, side by side.
inline unsigned squeeze(unsigned bits, unsigned kept) {
  if (kept == (1u << GROUP) - 1) return bits;
  if ((bits & kept) == kept) return (1u << ones(kept)) - 1;
  unsigned found = 0;
  for (int n = 0; kept; kept &= kept - 1) found |= ((bits >> __builtin_ctz(kept)) & 1) << n++;
  return found;
}

}  // namespace

// A count that the bytes cannot hold would be an allocation bomb.
void check_level_count(int64_t codec, int64_t bits, Span in, int64_t count) {
  require(count >= 0, "negative number of levels");
  switch (codec) {
    case LEVEL_NONE: return;
    case LEVEL_FLAT: require(count <= in.size / 2, "levels cut short"); return;
    case LEVEL_INLINE: require(count <= BLOCK, "packed levels of more than 1024 entries"); return;
    case LEVEL_OUT_OF_LINE:  // of width 0: all are zero, and no byte is needed to say so
      require(count <= (bits == 0 ? MAX_CHUNK_LEVELS : in.size * 8), "packed levels cut short");
      return;
    case LEVEL_RLE: require(count / MAX_RUN <= in.size, "runs of levels cut short"); return;
    default: fail("unknown level encoding");
  }
}

// Levels lo .. lo+n of a buffer that holds `count` of them.
void decode_levels(int64_t codec, int64_t bits, Span in, int64_t count, int64_t lo, int64_t n, uint16_t* out) {
  check_level_count(codec, bits, in, count);
  require(lo >= 0 && n >= 0 && lo <= count && n <= count - lo, "levels outside of their chunk");
  if (n == 0) return;
  alignas(64) uint16_t block[BLOCK];
  switch (codec) {
    case LEVEL_FLAT: std::memcpy(out, in.data + lo * 2, size_t(n) * 2); return;
    case LEVEL_INLINE: {
      require(in.size >= 2, "packed levels without their header");
      const int64_t width = int64_t(load(in.data, 2));
      require(width <= 16 && in.size >= 2 + 128 * width, "packed levels cut short");
      if (n < 16) {
        for (int64_t i = 0; i < n; i++) out[i] = uint16_t(unpack_one(16, in.data + 2, int(width), lo + i));
        return;
      }
      unpack_block(16, in.data + 2, int(width), block);
      std::memcpy(out, block + lo, size_t(n) * 2);
      return;
    }
    case LEVEL_OUT_OF_LINE: {
      require(bits >= 0 && bits <= 16, "packed levels of an impossible width");
      if (bits == 0) {
        std::fill(out, out + n, uint16_t(0));
        return;
      }
      const int64_t full = count / BLOCK, tail = count % BLOCK, size = 128 * bits;
      require(full <= in.size / size, "packed levels cut short");
      const int64_t rest = in.size - full * size;
      const bool raw = rest == tail * 2;
      require(tail == 0 || raw || rest >= size, "packed levels cut short");
      while (n > 0) {
        const int64_t b = lo / BLOCK, from = lo % BLOCK;
        const int64_t m = std::min(n, (b < full ? BLOCK : tail) - from);
        const uint8_t* packed = in.data + b * size;
        if (b == full && raw) {
          std::memcpy(out, packed + from * 2, size_t(m) * 2);
        } else if (m < 16) {
          for (int64_t i = 0; i < m; i++) out[i] = uint16_t(unpack_one(16, packed, int(bits), from + i));
        } else if (m == BLOCK) {
          unpack_block(16, packed, int(bits), out);
        } else {
          unpack_block(16, packed, int(bits), block);
          std::memcpy(out, block + from, size_t(m) * 2);
        }
        out += m;
        lo += m;
        n -= m;
      }
      return;
    }
    case LEVEL_RLE: {
      require(in.size >= 8, "runs of levels without their header");
      const uint64_t values = load(in.data, 8);
      require(values <= uint64_t(in.size - 8), "runs of levels cut short");
      const uint8_t* v = in.data + 8;
      const uint8_t* lengths = v + values;
      const int64_t runs = in.size - 8 - int64_t(values);
      require(runs <= int64_t(values / 2), "fewer run values than run lengths");
      int64_t at = 0, done = 0;
      for (int64_t r = 0; r < runs && done < n; r++) {
        const int64_t next = at + lengths[r];
        if (next > lo) {
          const uint16_t level = uint16_t(load(v + r * 2, 2));
          const int64_t m = std::min(next, lo + n) - std::max(at, lo);
          std::fill(out + done, out + done + m, level);
          done += m;
        }
        at = next;
      }
      require(done == n, "runs of levels do not fill their chunk");
      return;
    }
    default: fail("unknown level encoding");
  }
}

// From the numbers of a page to those of the column.
void map_levels(const Column& column, const int64_t* page, uint16_t* levels, int64_t n) {
  Span lut = Column::cut(column.side, page[LUT_POS], page[LUT_LEN], "level map outside of its table");
  const int64_t known = lut.size / 2;
  const uint16_t worst = greatest(levels, n);
  require(n == 0 || worst < known, "level that no layer of the page has");
  bool same = true;
  for (int64_t d = 0; d <= worst && d < known; d++) same = same && load(lut.data + 2 * d, 2) == uint64_t(d);
  if (same) return;
  for (int64_t i = 0; i < n; i++) std::memcpy(&levels[i], lut.data + 2 * int64_t(levels[i]), 2);
}

namespace {

// Definition levels of items of a column without lists: entries are items.
void definition(In<uint8_t> src, In<uint8_t> aux, In<int64_t> staged, In<uint8_t> side, In<int64_t> pages,
                In<int64_t> first, In<int64_t> chunks, In<int64_t> start, In<int64_t> count, Out<uint16_t> out) {
  Column column(src, aux, staged, side, pages, first, chunks);
  Segments segments(start, count);
  uint16_t* base = out.data();
  const int64_t room = int64_t(out.size());
  nb::gil_scoped_release release;
  for_pieces(column, segments, [&](const Chunk& chunk, int64_t lo, int64_t n, int64_t at) {
    require(n <= room - at, "output smaller than the items that were asked for");
    const int64_t* p = column.page(chunk.page);
    uint16_t* o = base + at;
    if (p[KIND] == FULL_ZIP && p[CONTROL_BYTES] > 0) {
      const int64_t control = p[CONTROL_BYTES], bits = p[CONTROL_DEF_BITS];
      require(control <= 4 && bits >= 0 && bits <= 16 && p[STRIDE] > 0, "control words out of bounds");
      Span data = Column::cut(column.src, p[DATA_POS], p[DATA_SIZE], "page buffer outside of the file");
      require(p[STRIDE] <= data.size, "full-zip page cut short");
      const int64_t stride = control + p[STRIDE];
      require(lo + n <= data.size / stride, "full-zip page cut short");
      const uint64_t mask = (uint64_t(1) << bits) - 1;
      for (int64_t i = 0; i < n; i++) o[i] = uint16_t(load(data.data + (lo + i) * stride, int(control)) & mask);
    } else if (p[DEF_CODEC] == LEVEL_NONE || p[KIND] == FULL_ZIP) {
      std::fill(o, o + n, uint16_t(p[DEFAULT_DEF]));
    } else {
      decode_levels(p[DEF_CODEC], p[DEF_BITS], chunk.def, chunk.levels, lo, n, o);
    }
    map_levels(column, p, o, n);
  });
}

struct Levels {
  std::vector<uint16_t> rep, def;
};

void read_levels(const Column& column, const Chunk& chunk, int64_t lo, int64_t n, uint16_t* rep, uint16_t* def) {
  const int64_t* p = column.page(chunk.page);
  require(p[REP_CODEC] != LEVEL_NONE, "page of lists without repetition levels");
  decode_levels(p[REP_CODEC], p[REP_BITS], chunk.rep, chunk.levels, lo, n, rep);
  if (p[DEF_CODEC] != LEVEL_NONE) {
    decode_levels(p[DEF_CODEC], p[DEF_BITS], chunk.def, chunk.levels, lo, n, def);
  } else {
    std::fill(def, def + n, uint16_t(p[DEFAULT_DEF]));
  }
}

// At most how many level entries the chunks [low, high) hold.
int64_t level_bound(In<uint8_t> src, In<uint8_t> aux, In<int64_t> staged, In<uint8_t> side, In<int64_t> pages,
                    In<int64_t> first, In<int64_t> chunks, int64_t low, int64_t high) {
  Column column(src, aux, staged, side, pages, first, chunks);
  require(low >= 0 && high <= column.num_chunks, "chunks outside of the column");
  nb::gil_scoped_release release;
  Chunk chunk;
  int64_t total = 0;
  for (int64_t c = low; c < high; c++) {
    column.open(c, chunk);
    const int64_t* p = column.page(chunk.page);
    check_level_count(p[REP_CODEC], p[REP_BITS], chunk.rep, chunk.levels);
    total += chunk.levels;
  }
  return total;
}

// Level entries and item ranges of rows of a column with lists. `started[c]` rows start before chunk c. Writes
// as many entries as fit and returns how many there are; item_start and item_count get one entry a segment.
int64_t rows(In<uint8_t> src, In<uint8_t> aux, In<int64_t> staged, In<uint8_t> side, In<int64_t> pages,
             In<int64_t> first, In<int64_t> chunks, In<int64_t> started_, In<int64_t> start, In<int64_t> count,
             Out<uint16_t> rep_, Out<uint16_t> def_, Out<int64_t> item_start, Out<int64_t> item_count) {
  Column column(src, aux, staged, side, pages, first, chunks);
  Segments segments(start, count);
  require(int64_t(started_.size()) == column.num_chunks + 1, "row table: wrong size");
  require(rep_.size() == def_.size(), "outputs of levels differ in size");
  require(int64_t(item_start.size()) >= segments.size && int64_t(item_count.size()) >= segments.size,
          "outputs of item ranges are too small");
  const int64_t* started = started_.data();
  const int64_t room = int64_t(rep_.size()), total = started[column.num_chunks];
  uint16_t *rep_out = rep_.data(), *def_out = def_.data();
  int64_t *starts = item_start.data(), *counts = item_count.data();
  nb::gil_scoped_release release;
  Levels levels;
  Chunk chunk;
  int64_t opened = -1, at = 0;

  auto open = [&](int64_t c) {
    if (c == opened) return;
    column.open(c, chunk);
    const int64_t* p = column.page(chunk.page);
    check_level_count(p[REP_CODEC], p[REP_BITS], chunk.rep, chunk.levels);
    levels.rep.resize(size_t(chunk.levels));
    levels.def.resize(size_t(chunk.levels));
    read_levels(column, chunk, 0, chunk.levels, levels.rep.data(), levels.def.data());
    opened = c;
  };

  for (int64_t s = 0; s < segments.size; s++) {
    const int64_t r = segments.start[s], n = segments.n(s);
    require(r >= 0 && n >= 0 && r <= total && n <= total - r, "rows outside of the column");
    starts[s] = counts[s] = 0;
    if (n == 0) continue;
    int64_t c = int64_t(std::upper_bound(started, started + column.num_chunks + 1, r) - started) - 1;
    require(c >= 0 && c < column.num_chunks, "row that no chunk starts");
    const int64_t stop = r + n;
    bool begun = false;
    for (; c < column.num_chunks; c++) {
      open(c);
      const int64_t* p = column.page(chunk.page);
      const uint16_t* rep = levels.rep.data();
      const uint16_t* def = levels.def.data();
      const int64_t size = chunk.levels;
      const uint16_t top = uint16_t(p[MAX_REP]), visible = uint16_t(p[VISIBLE]);
      int64_t low = 0, high = size, seen = started[c];
      if (!begun) {
        int64_t skipped = 0;
        for (; low < size; low++) {
          if (rep[low] == top && seen++ == r) break;
          skipped += def[low] <= visible;
        }
        require(low < size, "repetition index and levels disagree");
        starts[s] = column.first[c] + skipped;
        begun = true;
        seen = r;
      } else if (seen == stop && (size == 0 || rep[0] == top)) {
        break;
      }
      if (started[c + 1] > stop) {
        for (high = low; high < size; high++)
          if (rep[high] == top && seen++ == stop) break;
      }
      const int64_t m = high - low;
      counts[s] += count_at_most(def + low, m, visible);
      if (m <= room - at) {
        std::memcpy(rep_out + at, rep + low, size_t(m) * 2);
        std::memcpy(def_out + at, def + low, size_t(m) * 2);
        map_levels(column, p, def_out + at, m);
      }
      at += m;
      if (high < size) break;
      if (started[c + 1] >= stop && c + 1 < column.num_chunks && column.chunks[(c + 1) * CHUNK_FIELDS + 2] != chunk.page)
        break;
    }
  }
  return at;
}

// Validity of an item layer: entries with rep >= depth and def <= cut own a slot, valid if def < level. Only
// every stride-th slot counts (fixed-size lists of structs repeat theirs). Returns (slots, nulls).
nb::tuple unravel_items(In<uint16_t> rep_, In<uint16_t> def_, int64_t depth, int64_t cut, int64_t level,
                        int64_t stride, Out<uint8_t> bitmap) {
  const int64_t n = int64_t(def_.size()), room = int64_t(bitmap.size()) * 8;
  require(rep_.size() == 0 || int64_t(rep_.size()) == n, "repetition and definition levels differ in number");
  require(stride > 0, "stride of a fixed-size list must be positive");
  const uint16_t* rep = rep_.size() ? rep_.data() : nullptr;
  const uint16_t* def = def_.data();
  uint8_t* out = bitmap.data();
  int64_t slots = 0, valid = 0;
  {
    nb::gil_scoped_release release;
    if (!rep && stride == 1) {
      require(n <= room, "bitmap smaller than its layer");
      int64_t i = 0;
      for (; i + 8 <= n; i += 8) {
        unsigned byte = 0;
        for (int b = 0; b < 8; b++) byte |= unsigned(def[i + b] < level) << b;
        out[i / 8] = uint8_t(byte);
        valid += __builtin_popcount(byte);
      }
      unsigned byte = 0;
      for (int b = 0; i + b < n; b++) byte |= unsigned(def[i + b] < level) << b;
      if (i < n) out[i / 8] = uint8_t(byte);
      valid += __builtin_popcount(byte);
      slots = n;
    } else {
      BitWriter bits{out, room};
      int64_t seen = 0, i = 0;
      if (stride == 1 && cut >= 0 && cut <= 0xFFFF && level > 0 && level <= 0x10000 && depth >= 0 && depth <= 0x10000) {
        for (; i + GROUP <= n; i += GROUP) {
          unsigned own = at_most(def + i, uint16_t(cut));
          if (depth > 0) own &= ~at_most(rep + i, uint16_t(depth - 1));
          const unsigned good = at_most(def + i, uint16_t(level - 1)) & own;
          valid += ones(good);
          bits.append(squeeze(good, own), ones(own));
        }
      }
      for (; i < n; i++) {
        if ((rep && rep[i] < depth) || def[i] > cut) continue;
        if (stride > 1 && seen++ % stride != 0) continue;
        const unsigned bit = def[i] < level;
        valid += bit;
        bits.append(bit, 1);
      }
      bits.finish();
      slots = bits.size;
    }
  }
  return nb::make_tuple(slots, slots - valid);
}

// Offsets and validity of a list layer, `depth` = 1 for the innermost: entries with rep >= depth and
// def <= cut are its lists; those with def <= inner own its children (for depth 1: items, any rep).
// `level` is the layer's null level, level + 1 its empty one. Returns (lists, nulls, children).
template <typename T>
nb::tuple unravel_lists(In<uint16_t> rep_, In<uint16_t> def_, int64_t depth, int64_t cut, int64_t inner,
                        int64_t level, Out<T> offsets, Out<uint8_t> bitmap) {
  const int64_t n = int64_t(def_.size());
  require(int64_t(rep_.size()) == n, "repetition and definition levels differ in number");
  const int64_t room = std::min(int64_t(offsets.size()) - 1, int64_t(bitmap.size()) * 8);
  require(room >= 0, "no room for offsets");
  const uint16_t *rep = rep_.data(), *def = def_.data();
  T* to = offsets.data();
  uint8_t* out = bitmap.data();
  int64_t lists = 0, children = 0, nulls = 0;
  {
    nb::gil_scoped_release release;
    BitWriter bits{out, room};
    int64_t i = 0;
    const bool narrow = depth >= 1 && depth <= 0xFFFF && cut >= 0 && cut <= 0xFFFF && inner >= 0 && inner <= 0xFFFF;
    if (narrow && level >= 1 && level < 0xFFFF) {
      for (; i + GROUP <= n; i += GROUP) {
        const unsigned own = at_most(def + i, uint16_t(cut)) & ~at_most(rep + i, uint16_t(depth - 1));
        unsigned kids = at_most(def + i, uint16_t(inner));
        if (depth > 1) kids &= ~at_most(rep + i, uint16_t(depth - 2));
        if (own) {
          const unsigned empty = at_most(def + i, uint16_t(level + 1)) & ~at_most(def + i, uint16_t(level));
          const unsigned good = at_most(def + i, uint16_t(level - 1)) | empty;
          const int many = ones(own);
          require(many <= room - lists, "more lists than their parent has");
          for (unsigned left = own; left; left &= left - 1)
            to[lists++] = T(children + ones(kids & ((left & -left) - 1)));
          nulls += many - ones(good & own);
          bits.append(squeeze(good, own), many);
        }
        children += ones(kids);
      }
    }
    for (; i < n; i++) {
      const uint16_t d = def[i];
      if (rep[i] >= depth && d <= cut) {
        require(lists < room, "more lists than their parent has");
        to[lists++] = T(children);
        const unsigned bit = d < level || d == level + 1;
        nulls += 1 - bit;
        bits.append(bit, 1);
      }
      children += rep[i] >= depth - 1 && d <= inner;
    }
    bits.finish();
    to[lists] = T(children);
  }
  return nb::make_tuple(lists, nulls, children);
}

}  // namespace

void register_levels(nb::module_& m) {
  m.def("definition", &definition);
  m.def("level_bound", &level_bound);
  m.def("rows", &rows);
  m.def("unravel_items", &unravel_items);
  m.def("unravel_lists", &unravel_lists<int32_t>);
  m.def("unravel_lists", &unravel_lists<int64_t>);
  m.def("block_levels", [](In<uint8_t> in, int64_t codec, int64_t bits, Out<uint16_t> out) {
    Span data{in.data(), int64_t(in.size())};
    uint16_t* o = out.data();
    const int64_t n = int64_t(out.size());
    nb::gil_scoped_release release;
    decode_levels(codec, bits, data, n, 0, n, o);
  });
}

}  // namespace tiltyard
