// CRC-32 of zlib (reflected polynomial 0xEDB88320) by folding with carry-less products, sixteen bytes a register
// (Gopal and others: Fast CRC Computation for Generic Polynomials Using PCLMULQDQ, Intel 2009). Bound only where the
// processor has the instruction; elsewhere the caller's zlib is as good as anything here.
#include "encode.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define TY_FOLDS 1
#endif

namespace tiltyard {
#ifdef TY_FOLDS
namespace {

struct ByteTable {
  std::uint32_t of[256];
  constexpr ByteTable() : of{} {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      std::uint32_t rest = byte;
      for (int bit = 0; bit < 8; ++bit) rest = rest & 1 ? rest >> 1 ^ 0xEDB88320u : rest >> 1;
      of[byte] = rest;
    }
  }
};
constexpr ByteTable kBytes;

std::uint32_t by_byte(std::uint32_t state, const std::uint8_t* p, std::size_t n) {
  for (; n; --n, ++p) state = kBytes.of[(state ^ *p) & 0xff] ^ state >> 8;
  return state;
}

// What x^(bits + 32) and x^(bits - 32) leave modulo the polynomial, reflected and shifted by one.
constexpr std::uint64_t kOver64Bytes[2] = {0x154442bd4, 0x1c6e41596}, kOver16Bytes[2] = {0x1751997d0, 0x0ccaa009e};

__attribute__((target("pclmul,sse4.1"))) inline __m128i folded(__m128i state, __m128i over, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(state, over, 0x00), high = _mm_clmulepi64_si128(state, over, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

__attribute__((target("pclmul,sse4.1"))) std::uint32_t by_folding(std::uint32_t state, const std::uint8_t* p, std::size_t n) {
  if (n < 64) return by_byte(state, p, n);
  auto word = [](const std::uint8_t* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); };
  const __m128i far = _mm_set_epi64x(static_cast<long long>(kOver64Bytes[1]), static_cast<long long>(kOver64Bytes[0]));
  const __m128i near = _mm_set_epi64x(static_cast<long long>(kOver16Bytes[1]), static_cast<long long>(kOver16Bytes[0]));
  __m128i a = _mm_xor_si128(word(p), _mm_cvtsi32_si128(static_cast<int>(state)));
  __m128i b = word(p + 16), c = word(p + 32), d = word(p + 48);
  for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
    a = folded(a, far, word(p));
    b = folded(b, far, word(p + 16));
    c = folded(c, far, word(p + 32));
    d = folded(d, far, word(p + 48));
  }
  a = folded(folded(folded(a, near, b), near, c), near, d);
  for (; n >= 16; p += 16, n -= 16) a = folded(a, near, word(p));
  // Sixteen bytes with the sum of all before them.
  std::uint8_t rest[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rest), a);
  return by_byte(by_byte(0, rest, 16), p, n);
}

std::uint32_t crc32(In<std::uint8_t> data, std::uint32_t start) {
  nb::gil_scoped_release release;
  return ~by_folding(~start, data.data(), data.size());
}

}  // namespace

void bind_crc(nb::module_& m) {
  if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"))
    m.def("crc32", &crc32, nb::arg("data"), nb::arg("start"));
}
#else
void bind_crc(nb::module_&) {}
#endif

}  // namespace tiltyard
