// Questions about whole numbers, answered while their column is unpacked: which lie in a range, which are of a set.
#include "decode_page.h"

namespace tiltyard {
namespace {

// out[i] = 1 where value i lies in the arc of `span` + 1 words that begins at `low`: with numbers that wrap around,
// one test serves signed and unsigned values.
template <typename T>
inline __attribute__((always_inline)) void test_arc(const uint8_t* values, int64_t n, T low, T span, uint8_t* out) {
  for (int64_t i = 0; i < n; i++) {
    T v;
    std::memcpy(&v, values + i * sizeof(T), sizeof(T));
    out[i] = uint8_t(T(v - low) <= span);
  }
}

TY_CLONES void test_arc8(const uint8_t* v, int64_t n, uint8_t low, uint8_t span, uint8_t* out) {
  test_arc<uint8_t>(v, n, low, span, out);
}
TY_CLONES void test_arc16(const uint8_t* v, int64_t n, uint16_t low, uint16_t span, uint8_t* out) {
  test_arc<uint16_t>(v, n, low, span, out);
}
TY_CLONES void test_arc32(const uint8_t* v, int64_t n, uint32_t low, uint32_t span, uint8_t* out) {
  test_arc<uint32_t>(v, n, low, span, out);
}
TY_CLONES void test_arc64(const uint8_t* v, int64_t n, uint64_t low, uint64_t span, uint8_t* out) {
  test_arc<uint64_t>(v, n, low, span, out);
}

void test_values(int64_t bits, const uint8_t* v, int64_t n, uint64_t low, uint64_t span, uint8_t* out) {
  switch (bits) {
    case 8: return test_arc8(v, n, uint8_t(low), uint8_t(span), out);
    case 16: return test_arc16(v, n, uint16_t(low), uint16_t(span), out);
    case 32: return test_arc32(v, n, uint32_t(low), uint32_t(span), out);
    default: return test_arc64(v, n, low, span, out);
  }
}

// What the width of a bit packed chunk says of all its values, which are 0 to 2^width - 1: 0 none passes, 1 each
// one does, -1 they must be looked at.
int told_by_width(int64_t bits, uint64_t width, uint64_t low, uint64_t span) {
  const uint64_t every = bits == 64 ? ~uint64_t(0) : (uint64_t(1) << bits) - 1;
  const uint64_t most = width == 64 ? ~uint64_t(0) : (uint64_t(1) << width) - 1;
  const uint64_t zero = (0 - low) & every;  // where 0 stands, counted from the begin of the arc
  if (zero <= span) return most <= span - zero ? 1 : -1;
  return low > most ? 0 : -1;
}

// The same of a chunk; damage is left to those who unpack it.
int told_by_chunk(const Chunk& chunk, const int64_t* p, int64_t bits, uint64_t low, uint64_t span) {
  const int64_t buffer = p[BUFFER], word = bits / 8;
  if (p[VALUE_CODEC] != VALUE_INLINE || p[KIND] == FULL_ZIP || buffer < 0 || buffer >= p[BUFFERS]) return -1;
  const Span in = chunk.value[buffer];
  if (in.size < word || chunk.items > BLOCK) return -1;
  const uint64_t width = load(in.data, int(word));
  if (width > uint64_t(bits) || in.size < word + 128 * int64_t(width)) return -1;
  return told_by_width(bits, width, low, span);
}

void check_testable(const int64_t* p, int64_t bits) {
  const int64_t codec = p[VALUE_CODEC];
  require(p[DICT_ITEMS] <= 0, "test of values in a dictionary");
  require(p[VALUE_BITS] == bits || codec == VALUE_NONE || codec == VALUE_ONES, "pages of different value widths");
}

void check_word(int64_t bits) {
  require(bits == 8 || bits == 16 || bits == 32 || bits == 64, "test of values of a width that is no word");
}

// Which values lie in an arc, block by block: what is unpacked never leaves the nearest cache.
void within(const ColumnTables& tables, In<int64_t> start, In<int64_t> count, int64_t bits, uint64_t low,
            uint64_t span, Out<uint8_t> out_) {
  check_word(bits);
  require(bits == 64 || (low >> bits == 0 && span >> bits == 0), "bounds wider than the values");
  const Column& column = tables.column;
  const Segments segments(start, count);
  uint8_t* out = out_.data();
  const int64_t size = int64_t(out_.size());
  nb::gil_scoped_release release;
  alignas(64) uint8_t block[BLOCK * 8];
  for_pieces(column, segments, [&](const Chunk& chunk, int64_t lo, int64_t n, int64_t at) {
    require(n <= size - at, "output smaller than the items that were asked for");
    const int64_t* p = column.page(chunk.page);
    check_testable(p, bits);
    const int told = told_by_chunk(chunk, p, bits, low, span);
    if (told >= 0) {
      std::memset(out + at, told, size_t(n));
      return;
    }
    for (int64_t done = 0; done < n; done += BLOCK) {
      const int64_t m = std::min(BLOCK, n - done);
      fixed_piece(column, chunk, bits, lo + done, m, block, 0);
      test_values(bits, block, m, low, span, out + at + done);
    }
  });
}

// A set of words of an arc, or a little more than that, as bytes that are zero where no word of the set belongs.
// Dense: the byte of a word is the one at its distance from `low`. Sparse: the one at its product with `multiplier`,
// shifted; it is ANY, or MARK with the next seven bits of the product of the one word that belongs there.
constexpr uint8_t ANY = 1, MARK = 0x80;
struct Filter {
  uint64_t low, span, multiplier;
  int shift;
  const uint8_t* bytes;
};

// Words that pass, with their numbers. First the byte of each, without branches, for which word passes cannot be
// foreseen; then these by eights, of which most are zero. There are at most BLOCK.
template <typename T>
int64_t pass_words(const uint8_t* values, int64_t n, const Filter& f, int64_t number, int64_t* positions,
                   uint64_t* words) {
  alignas(8) uint8_t passes[BLOCK];
  const auto word_of = [values](int64_t i) {
    T v;
    std::memcpy(&v, values + i * sizeof(T), sizeof(T));
    return uint64_t(int64_t(v));
  };
  const uint64_t low = f.low, behind = f.span + 1, multiplier = f.multiplier;
  const uint8_t* bytes = f.bytes;
  const int shift = f.shift;
  if (multiplier == 1) {
    for (int64_t i = 0; i < n; i++) passes[i] = bytes[std::min(word_of(i) - low, behind)];
  } else {
    for (int64_t i = 0; i < n; i++) passes[i] = bytes[word_of(i) * multiplier >> shift];
  }
  std::memset(passes + n, 0, size_t((8 - n % 8) % 8));
  int64_t k = 0;
  for (int64_t i = 0; i < n; i += 8) {
    uint64_t left = load_word<uint64_t>(passes + i);
    while (left != 0) {
      const int64_t within = __builtin_ctzll(left) / 8, at = i + within;
      left &= ~(uint64_t(0xff) << 8 * within);
      const uint64_t word = word_of(at);
      const uint8_t mark = MARK | uint8_t(word * multiplier >> (shift - 7) & 0x7f);
      if (word - low > f.span || (passes[at] != ANY && (multiplier == 1 || passes[at] != mark))) continue;
      positions[k] = number + at;
      words[k++] = word;
    }
  }
  return k;
}

int64_t pass_values(int64_t bits, bool is_signed, const uint8_t* v, int64_t n, const Filter& f, int64_t number,
                    int64_t* positions, uint64_t* words) {
  switch (is_signed ? -bits : bits) {
    case 8: return pass_words<uint8_t>(v, n, f, number, positions, words);
    case -8: return pass_words<int8_t>(v, n, f, number, positions, words);
    case 16: return pass_words<uint16_t>(v, n, f, number, positions, words);
    case -16: return pass_words<int16_t>(v, n, f, number, positions, words);
    case 32: return pass_words<uint32_t>(v, n, f, number, positions, words);
    case -32: return pass_words<int32_t>(v, n, f, number, positions, words);
    default: return pass_words<uint64_t>(v, n, f, number, positions, words);
  }
}

// Which values pass a filter of 64-bit words: their numbers and the words that they are. Returns how many.
int64_t among(const ColumnTables& tables, In<int64_t> start, In<int64_t> count, int64_t bits, bool is_signed,
              uint64_t low, uint64_t span, uint64_t multiplier, int64_t shift, In<uint8_t> filter_,
              Out<int64_t> positions_, Out<uint64_t> words_) {
  check_word(bits);
  require(shift >= 7 && shift < 64 && (multiplier != 1 || span < ~uint64_t(0)), "filter of an impossible size");
  const uint64_t last = multiplier == 1 ? span + 1 : ~uint64_t(0) >> shift;
  require(last < uint64_t(filter_.size()), "filter of fewer bytes than places");
  const Column& column = tables.column;
  const Segments segments(start, count);
  const Filter filter{low, span, multiplier, int(shift), filter_.data()};
  const int64_t size = int64_t(std::min(positions_.size(), words_.size()));
  int64_t* positions = positions_.data();
  uint64_t* words = words_.data();
  nb::gil_scoped_release release;
  alignas(64) uint8_t block[BLOCK * 8];
  int64_t k = 0;
  for_pieces(column, segments, [&](const Chunk& chunk, int64_t lo, int64_t n, int64_t at) {
    require(n <= size - at, "output smaller than the items that were asked for");
    const int64_t* p = column.page(chunk.page);
    check_testable(p, bits);
    if (bits == 64 && told_by_chunk(chunk, p, bits, low, span) == 0) return;
    for (int64_t done = 0; done < n; done += BLOCK) {
      const int64_t m = std::min(BLOCK, n - done);
      fixed_piece(column, chunk, bits, lo + done, m, block, 0);
      k += pass_values(bits, is_signed, block, m, filter, at + done, positions + k, words + k);
    }
  });
  return k;
}

}  // namespace

void register_within(nb::module_& m) {
  m.def("within", &within);
  m.def("among", &among);
}

}  // namespace tiltyard
