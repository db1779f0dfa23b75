// Values of constant width: flat, bit packed, run length, byte-stream-split, scalar, full-zip fixed.
#include "decode_page.h"

namespace tiltyard {
namespace {

// n bits from bit `from` of `in` to bit `to` of `out`; other bits of the last byte written become zero.
void copy_bits(uint8_t* out, int64_t to, const uint8_t* in, int64_t from, int64_t n) {
  if (n == 0) return;
  if ((to & 7) == 0 && (from & 7) == 0) {
    std::memcpy(out + to / 8, in + from / 8, size_t(n / 8));
    if (n & 7) out[(to + n) / 8] = uint8_t(in[(from + n) / 8] & ((1 << (n & 7)) - 1));
    return;
  }
  while (n > 0 && (to & 7) != 0) {
    const uint8_t bit = (in[from >> 3] >> (from & 7)) & 1;
    uint8_t& byte = out[to >> 3];
    byte = uint8_t((byte & ((1 << (to & 7)) - 1)) | (bit << (to & 7)));
    to++, from++, n--;
  }
  const int shift = int(from & 7);
  const uint8_t* p = in + (from >> 3);
  uint8_t* o = out + (to >> 3);
  while (n >= 8) {
    *o++ = shift ? uint8_t((p[0] >> shift) | (p[1] << (8 - shift))) : p[0];
    p++;
    n -= 8;
  }
  if (n > 0) {
    unsigned v = p[0] >> shift;
    if (shift && n > 8 - shift) v |= unsigned(p[1]) << (8 - shift);
    *o = uint8_t(v & ((1u << n) - 1));
  }
}

void copy_items(uint8_t* out, const uint8_t* in, int64_t n, int64_t bytes) {
  if (n == 1) {
    switch (bytes) {
      case 1: out[0] = in[0]; return;
      case 2: std::memcpy(out, in, 2); return;
      case 4: std::memcpy(out, in, 4); return;
      case 8: std::memcpy(out, in, 8); return;
    }
  }
  std::memcpy(out, in, size_t(n) * size_t(bytes));
}

void inline_piece(const Chunk& chunk, Span in, int bits, int64_t lo, int64_t n, uint8_t* out) {
  const int word = bits / 8;
  require(bits == 8 || bits == 16 || bits == 32 || bits == 64, "bit packing of a width that is no word");
  require(chunk.items <= BLOCK, "bit packed chunk of more than 1024 values");
  require(in.size >= word, "bit packed chunk without its header");
  const uint64_t width = load(in.data, word);
  require(width <= uint64_t(bits), "bit packed chunk wider than its values");
  require(in.size >= word + 128 * int64_t(width), "bit packed chunk cut short");
  const uint8_t* packed = in.data + word;
  if (n < 16) {
    for (int64_t i = 0; i < n; i++) {
      const uint64_t v = unpack_one(bits, packed, int(width), lo + i);
      copy_items(out + i * word, reinterpret_cast<const uint8_t*>(&v), 1, word);
    }
    return;
  }
  alignas(64) uint8_t block[BLOCK * 8];
  if (n == BLOCK && reinterpret_cast<uintptr_t>(out) % 8 == 0) {
    unpack_block(bits, packed, int(width), out);
  } else {
    unpack_block(bits, packed, int(width), block);
    std::memcpy(out, block + lo * word, size_t(n * word));
  }
}

template <typename T>
void runs(Span values, Span lengths, int64_t lo, int64_t n, uint8_t* out) {
  int64_t at = 0, done = 0, count = lengths.size;
  require(count <= values.size / int64_t(sizeof(T)), "fewer run values than run lengths");
  for (int64_t r = 0; r < count && done < n; r++) {
    int64_t next = at + lengths.data[r];
    if (next > lo) {
      T v;
      std::memcpy(&v, values.data + r * sizeof(T), sizeof(T));
      int64_t m = std::min(next, lo + n) - std::max(at, lo);
      uint8_t* o = out + done * sizeof(T);
      for (int64_t i = 0; i < m; i++) std::memcpy(o + i * sizeof(T), &v, sizeof(T));
      done += m;
    }
    at = next;
  }
  require(done == n, "runs do not fill their chunk");
}

void rle_piece(Span values, Span lengths, int bits, int64_t lo, int64_t n, uint8_t* out) {
  switch (bits) {
    case 8: return runs<uint8_t>(values, lengths, lo, n, out);
    case 16: return runs<uint16_t>(values, lengths, lo, n, out);
    case 32: return runs<uint32_t>(values, lengths, lo, n, out);
    case 64: return runs<uint64_t>(values, lengths, lo, n, out);
    default: fail("run length encoding of a width that is no word");
  }
}

void split_piece(const Chunk& chunk, Span in, int bits, int64_t lo, int64_t n, uint8_t* out) {
  require(bits == 16 || bits == 32 || bits == 64, "byte stream split of a width that is no word");
  const int bytes = bits / 8;
  require(chunk.items <= in.size / bytes, "byte stream split chunk cut short");
  for (int j = 0; j < bytes; j++) {
    const uint8_t* stream = in.data + j * chunk.items + lo;
    for (int64_t i = 0; i < n; i++) out[i * bytes + j] = stream[i];
  }
}

void zip_piece(const Column& column, const int64_t* p, int64_t bits, int64_t lo, int64_t n, uint8_t* base, int64_t at) {
  const int64_t control = p[CONTROL_BYTES], bytes = bits / 8, within = p[WITHIN];
  require(control >= 0 && control <= 4, "control word wider than 4 bytes");
  require(p[STRIDE] > 0 && within >= 0 && within <= p[STRIDE] && (bits + 7) / 8 <= p[STRIDE] - within,
          "full-zip value wider than its stride");
  Span data = Column::cut(column.src, p[DATA_POS], p[DATA_SIZE], "page buffer outside of the file");
  require(p[STRIDE] <= data.size, "full-zip page cut short");
  const int64_t stride = control + p[STRIDE];
  require(lo + n <= data.size / stride, "full-zip page cut short");
  const uint8_t* in = data.data + lo * stride + control + within;
  if (bits % 8 != 0) {
    for (int64_t i = 0; i < n; i++) copy_bits(base, (at + i) * bits, in + i * stride, 0, bits);
  } else if (stride == bytes) {
    copy_items(base + at * bytes, in, n, bytes);
  } else {
    for (int64_t i = 0; i < n; i++) copy_items(base + (at + i) * bytes, in + i * stride, 1, bytes);
  }
}

void scalar_piece(const Column& column, const int64_t* p, int64_t bits, int64_t n, uint8_t* base, int64_t at) {
  Span value = Column::cut(column.side, p[SIDE_POS], p[SIDE_LEN], "scalar outside of its table");
  if (bits % 8 != 0) {
    require(bits == 1 && value.size >= 1, "scalar of a width that is neither bytes nor one bit");
    uint8_t pattern[512];
    std::memset(pattern, value.data[0] & 1 ? 0xFF : 0, sizeof(pattern));
    for (int64_t i = 0; i < n; i += 4096) copy_bits(base, at + i, pattern, 0, std::min<int64_t>(4096, n - i));
    return;
  }
  const int64_t bytes = bits / 8;
  require(value.size == bytes, "scalar of the wrong width");
  uint8_t* out = base + at * bytes;
  for (int64_t i = 0; i < n; i++) copy_items(out + i * bytes, value.data, 1, bytes);
}

template <typename T>
void shift_index(uint8_t* out, int64_t n, int64_t base, int64_t items) {
  T worst = 0;
  for (int64_t i = 0; i < n; i++) {
    T v;
    std::memcpy(&v, out + i * sizeof(T), sizeof(T));
    worst = std::max(worst, v);
    v = T(v + T(base));
    std::memcpy(out + i * sizeof(T), &v, sizeof(T));
  }
  require(n == 0 || uint64_t(worst) < uint64_t(items), "dictionary index outside of its dictionary");
}

void widen(uint8_t* out, int64_t to, const uint8_t* in, int64_t from, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    uint64_t v = load(in + i * from, int(from));
    std::memcpy(out + i * to, &v, size_t(to));
  }
}

}  // namespace

void fixed_piece(const Column& column, const Chunk& chunk, int64_t bits, int64_t lo, int64_t n, uint8_t* base,
                 int64_t at) {
  const int64_t* p = column.page(chunk.page);
  const int64_t codec = p[VALUE_CODEC], bytes = bits / 8, buffer = p[BUFFER];
  uint8_t* out = base + at * bytes;
  if (codec == VALUE_NONE || codec == VALUE_ONES) {
    const int fill = codec == VALUE_ONES ? 0xFF : 0;
    if (bits % 8 == 0) {
      std::memset(out, fill, size_t(n * bytes));
    } else {
      uint8_t pattern[512];
      std::memset(pattern, fill, sizeof(pattern));
      for (int64_t i = 0; i < n * bits; i += 4096)
        copy_bits(base, at * bits + i, pattern, 0, std::min<int64_t>(4096, n * bits - i));
    }
    return;
  }
  if (codec == VALUE_SCALAR) return scalar_piece(column, p, bits, n, base, at);
  if (p[KIND] == FULL_ZIP) return zip_piece(column, p, bits, lo, n, base, at);
  require(buffer >= 0 && buffer < p[BUFFERS], "value buffer that the page does not have");
  Span in = chunk.value[buffer];
  switch (codec) {
    case VALUE_FLAT:
      require(bits > 0 && lo + n <= in.size * 8 / bits, "flat chunk cut short");
      if (bits % 8 == 0) {
        copy_items(out, in.data + lo * bytes, n, bytes);
      } else {
        copy_bits(base, at * bits, in.data, lo * bits, n * bits);
      }
      return;
    case VALUE_INLINE: return inline_piece(chunk, in, int(bits), lo, n, out);
    case VALUE_RLE:
      require(p[BUFFERS] >= 2, "run length page without run lengths");
      return rle_piece(in, chunk.value[1], int(bits), lo, n, out);
    case VALUE_BSS: return split_piece(chunk, in, int(bits), lo, n, out);
    default: fail("value encoding that has no fixed width");
  }
}

namespace {

// Values of segments, in order, into `base`, which holds `size` bytes.
void fill(const Column& column, const Segments& segments, int64_t bits, uint8_t* base, int64_t size) {
  require(bits > 0 && bits <= (int64_t(1) << 32), "value width out of bounds");
  const int64_t room = bits % 8 == 0 ? size / (bits / 8) : size * 8 / bits;
  std::vector<uint8_t> narrow;
  for_pieces(column, segments, [&](const Chunk& chunk, int64_t lo, int64_t n, int64_t at) {
    require(n <= room - at, "output smaller than the items that were asked for");
    const int64_t* p = column.page(chunk.page);
    const int64_t have = p[VALUE_BITS], codec = p[VALUE_CODEC];
    if (have == bits || codec == VALUE_NONE || codec == VALUE_ONES) {
      fixed_piece(column, chunk, bits, lo, n, base, at);
    } else {
      require(p[DICT_ITEMS] > 0 && have > 0 && have % 8 == 0 && bits % 8 == 0 && have < bits && bits <= 64, "pages of different value widths");
      narrow.resize(size_t(n * (have / 8)));
      fixed_piece(column, chunk, have, lo, n, narrow.data(), 0);
      widen(base + at * (bits / 8), bits / 8, narrow.data(), have / 8, n);
    }
    if (p[DICT_ITEMS] > 0 && codec != VALUE_NONE) {
      uint8_t* o = base + at * (bits / 8);  // bits is a word here: other widths fail below
      switch (bits) {
        case 8: shift_index<uint8_t>(o, n, p[DICT_BASE], p[DICT_ITEMS]); break;
        case 16: shift_index<uint16_t>(o, n, p[DICT_BASE], p[DICT_ITEMS]); break;
        case 32: shift_index<uint32_t>(o, n, p[DICT_BASE], p[DICT_ITEMS]); break;
        case 64: shift_index<uint64_t>(o, n, p[DICT_BASE], p[DICT_ITEMS]); break;
        default: fail("dictionary index of a width that is no word");
      }
    }
  });
}

void fixed(In<uint8_t> src, In<uint8_t> aux, In<int64_t> staged, In<uint8_t> side, In<int64_t> pages,
           In<int64_t> first, In<int64_t> chunks, In<int64_t> start, In<int64_t> count, int64_t bits,
           Out<uint8_t> out) {
  Column column(src, aux, staged, side, pages, first, chunks);
  Segments segments(start, count);
  uint8_t* base = out.data();
  const int64_t size = int64_t(out.size());
  nb::gil_scoped_release release;
  fill(column, segments, bits, base, size);
}

// Many columns, or one of many files, in one call. Per job four numbers: its segments (from, to), bits of a value,
// and where in `out` its values go.
constexpr int64_t JOB_FIELDS = 4;

void fixed_columns(nb::tuple tables, In<int64_t> start, In<int64_t> count, In<int64_t> jobs_, Out<uint8_t> out) {
  const int64_t n = int64_t(tables.size()), size = int64_t(out.size());
  require(int64_t(jobs_.size()) == n * JOB_FIELDS, "jobs and columns differ in number");
  std::vector<const Column*> columns;
  for (nb::handle each : tables) columns.push_back(&nb::cast<const ColumnTables&>(each).column);
  Segments segments(start, count);
  const int64_t* job = jobs_.data();
  uint8_t* base = out.data();
  nb::gil_scoped_release release;
  for (int64_t i = 0; i < n; i++, job += JOB_FIELDS) {
    require(job[3] >= 0 && job[3] <= size, "job outside of the output");
    fill(*columns[size_t(i)], segments.part(job[0], job[1]), job[2], base + job[3], size - job[3]);
  }
}

// A block-compressed buffer of n values (dictionaries): codec is a LevelCodec, `bits` the word.
void block_fixed(In<uint8_t> in, int64_t codec, int64_t bits, int64_t width, int64_t n, Out<uint8_t> out) {
  Span data{in.data(), int64_t(in.size())};
  uint8_t* o = out.data();
  require(n >= 0 && bits > 0 && bits <= (int64_t(1) << 32), "block width out of bounds");
  const int64_t bytes = bits / 8;
  require(bytes > 0 && n <= int64_t(out.size()) / bytes, "output smaller than the block");
  nb::gil_scoped_release release;
  if (n == 0) return;
  if (codec == LEVEL_FLAT) {
    require(bits % 8 == 0 && n <= data.size / bytes, "flat block cut short");
    std::memcpy(o, data.data, size_t(n * bytes));
    return;
  }
  require(bits == 8 || bits == 16 || bits == 32 || bits == 64, "packed block of a width that is no word");
  if (codec == LEVEL_INLINE) {
    Chunk chunk;
    chunk.items = n;
    return inline_piece(chunk, data, int(bits), 0, n, o);
  }
  if (codec == LEVEL_RLE) {
    require(data.size >= 8, "run length block without its header");
    const uint64_t values = load(data.data, 8);
    require(values <= uint64_t(data.size - 8), "run length block cut short");
    return rle_piece({data.data + 8, int64_t(values)}, {data.data + 8 + values, data.size - 8 - int64_t(values)},
                     int(bits), 0, n, o);
  }
  require(codec == LEVEL_OUT_OF_LINE && width >= 0 && width <= bits, "unknown block encoding");
  if (width == 0) {  // all are zero
    std::memset(o, 0, size_t(n * bytes));
    return;
  }
  const int64_t full = n / BLOCK, tail = n % BLOCK, block = 128 * width;
  const int64_t rest = data.size - full * block;
  require(full <= data.size / block, "bit packed block cut short");
  alignas(64) uint8_t words[BLOCK * 8];
  for (int64_t b = 0; b < full + (tail > 0 && rest != tail * bytes); b++) {
    require((b + 1) * block <= data.size, "bit packed block cut short");
    unpack_block(int(bits), data.data + b * block, int(width), words);
    std::memcpy(o + b * BLOCK * bytes, words, size_t((b < full ? BLOCK : tail) * bytes));
  }
  if (tail > 0 && rest == tail * bytes) std::memcpy(o + full * BLOCK * bytes, data.data + full * block, size_t(tail * bytes));
}

// Items of `width` bytes at given positions.
void gather_fixed(In<uint8_t> src, In<int64_t> position, int64_t width, Out<uint8_t> out) {
  const int64_t n = int64_t(position.size()), size = int64_t(src.size());
  require(width > 0 && n <= int64_t(out.size()) / width, "output smaller than the items that were asked for");
  const uint8_t* in = src.data();
  const int64_t* pos = position.data();
  uint8_t* o = out.data();
  nb::gil_scoped_release release;
  for (int64_t i = 0; i < n; i++) {
    require(pos[i] >= 0 && pos[i] <= size && width <= size - pos[i], "value outside of the file");
    copy_items(o + i * width, in + pos[i], 1, width);
  }
}

}  // namespace

void register_fixed(nb::module_& m) {
  m.def("fixed", &fixed);
  m.def("fixed_columns", &fixed_columns);
  m.def("block_fixed", &block_fixed);
  m.def("gather_fixed", &gather_fixed);
}

}  // namespace tiltyard
