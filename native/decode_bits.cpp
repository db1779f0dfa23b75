// FastLanes blocks of 1024 values: the transposed bit packing of compression.md section 3.2.
#include "decode_page.h"

namespace tiltyard {
namespace {

constexpr int ORDER[8] = {0, 4, 2, 6, 1, 5, 3, 7};

// Row r of all lanes is contiguous in the output and its source words are contiguous too. Words are read in place,
// at any address: copied into arrays first, they would be stored by halves of what is loaded again, which stalls.
template <typename T>
inline __attribute__((always_inline)) void unpack_rows(const uint8_t* __restrict packed, int width, T* __restrict out) {
  typedef T Loose __attribute__((aligned(1), may_alias));
  constexpr int bits = sizeof(T) * 8;
  constexpr int lanes = BLOCK / bits;
  if (width == 0) {
    std::memset(out, 0, BLOCK * sizeof(T));
    return;
  }
  const T mask = width == bits ? T(~T(0)) : T((T(1) << width) - 1);
  for (int r = 0; r < bits; r++) {
    const int bit = r * width;
    const int shift = bit % bits;
    const Loose* a = reinterpret_cast<const Loose*>(packed + size_t(bit / bits) * lanes * sizeof(T));
    Loose* to = reinterpret_cast<Loose*>(out + ORDER[r / 8] * 16 + (r % 8) * 128);
    if (shift + width > bits) {
      const Loose* b = a + lanes;
      const int up = bits - shift;
      for (int l = 0; l < lanes; l++) to[l] = T(T(T(a[l] >> shift) | T(b[l] << up)) & mask);
    } else {
      for (int l = 0; l < lanes; l++) to[l] = T(T(a[l] >> shift) & mask);
    }
  }
}

TY_CLONES void unpack8(const uint8_t* p, int w, uint8_t* out) { unpack_rows<uint8_t>(p, w, out); }
TY_CLONES void unpack16(const uint8_t* p, int w, uint16_t* out) { unpack_rows<uint16_t>(p, w, out); }
TY_CLONES void unpack32(const uint8_t* p, int w, uint32_t* out) { unpack_rows<uint32_t>(p, w, out); }
TY_CLONES void unpack64(const uint8_t* p, int w, uint64_t* out) { unpack_rows<uint64_t>(p, w, out); }

}  // namespace

// `packed` holds 128 * width bytes and width <= bits: the caller checked. `out` is aligned to its words.
void unpack_block(int bits, const uint8_t* packed, int width, void* out) {
  switch (bits) {
    case 8: return unpack8(packed, width, static_cast<uint8_t*>(out));
    case 16: return unpack16(packed, width, static_cast<uint16_t*>(out));
    case 32: return unpack32(packed, width, static_cast<uint32_t*>(out));
    case 64: return unpack64(packed, width, static_cast<uint64_t*>(out));
    default: fail("bit packing of a word that is not 8, 16, 32 or 64 bits wide");
  }
}

uint64_t unpack_one(int bits, const uint8_t* packed, int width, int64_t index) {
  if (width == 0) return 0;
  const PackedPlace at = packed_place(bits, width, index);
  const int bytes = bits / 8;
  const uint8_t* word = packed + at.word * bytes;
  uint64_t v = load(word, bytes) >> at.shift;
  if (at.shift + width > bits) v |= load(word + 128, bytes) << (bits - at.shift);  // the next row of words
  return width == 64 ? v : v & ((uint64_t(1) << width) - 1);
}

}  // namespace tiltyard
