// Whether text is UTF-8, which Arrow promises of strings and does not check when it makes them from buffers.
#include <algorithm>

#include "encode.h"

namespace tiltyard {
namespace {

constexpr std::size_t kStretch = 4096;  // bytes looked at before the answer so far is asked for

TY_CLONES bool has_high_bit(const std::uint8_t* p, std::size_t n) {
  std::uint8_t any = 0;
  for (std::size_t i = 0; i < n; ++i) any |= p[i];
  return any & 0x80;
}

// Lanes of bytes; comparisons give all ones or zero. One byte alone is a lane as well.
typedef std::uint8_t Lanes __attribute__((vector_size(32)));

// What a byte may be after the three before it: a continuation where one is due and nowhere else, no byte
// that UTF-8 never has, nothing that a shorter form could say, no surrogate, nothing above U+10FFFF.
#define TY_WRONG(T, third, second, before, byte)                                                             \
  (((T)(before >= 0xc0) | (T)(second >= 0xe0) | (T)(third >= 0xf0)) ^ (T)((byte & 0xc0) == 0x80)) |          \
      (T)((byte & 0xfe) == 0xc0) | (T)(byte >= 0xf5) | ((T)(before == 0xe0) & (T)(byte < 0xa0)) |            \
      ((T)(before == 0xf0) & (T)(byte < 0x90)) | ((T)(before == 0xed) & (T)(byte >= 0xa0)) |                 \
      ((T)(before == 0xf4) & (T)(byte >= 0x90))

bool wrong(std::uint8_t third, std::uint8_t second, std::uint8_t before, std::uint8_t byte) {
  return TY_WRONG(bool, third, second, before, byte);
}

// Three bytes before `p` can be read.
TY_CLONES bool is_wrong(const std::uint8_t* p, std::size_t n) {
  Lanes any = {};
  std::size_t i = 0;
  for (; i + sizeof(Lanes) <= n; i += sizeof(Lanes)) {
    Lanes third, second, before, byte;
    std::memcpy(&third, p + i - 3, sizeof(Lanes));
    std::memcpy(&second, p + i - 2, sizeof(Lanes));
    std::memcpy(&before, p + i - 1, sizeof(Lanes));
    std::memcpy(&byte, p + i, sizeof(Lanes));
    any |= TY_WRONG(Lanes, third, second, before, byte);
  }
  bool found = false;
  for (std::size_t lane = 0; lane < sizeof(Lanes); ++lane) found |= any[lane] != 0;
  for (; i < n; ++i) found |= wrong(p[i - 3], p[i - 2], p[i - 1], p[i]);
  return found;
}

// `ascii` becomes false when some byte is none of ASCII's.
bool is_utf8(const std::uint8_t* p, std::size_t n, bool& ascii) {
  std::uint8_t third = 0, second = 0, before = 0;
  const std::size_t head = std::min<std::size_t>(n, 3);
  for (std::size_t i = 0; i < head; ++i) {
    if (wrong(third, second, before, p[i])) return false;
    ascii &= p[i] < 0x80;
    third = second, second = before, before = p[i];
  }
  for (std::size_t at = head; at < n; at += kStretch) {
    const std::size_t size = std::min(kStretch, n - at);
    if (!has_high_bit(p + at - 3, size + 3)) continue;
    ascii = false;
    if (is_wrong(p + at, size)) return false;
  }
  if (n > 3) third = p[n - 3], second = p[n - 2], before = p[n - 1];
  return before < 0xc0 && second < 0xe0 && third < 0xf0;  // nothing is left open
}

// The first value that is not UTF-8; -1 when all are.
std::int64_t invalid_text(In<std::uint8_t> data, In<std::int64_t> offsets) {
  require(offsets.size() > 0, "offsets must have one entry more than values");
  nb::gil_scoped_release release;
  const std::int64_t* o = offsets.data();
  const std::size_t n = offsets.size() - 1;
  require(o[0] >= 0, "offsets must start at or above zero");
  for (std::size_t i = 0; i < n; ++i) require(o[i + 1] >= o[i], "offsets must not decrease");
  require(static_cast<std::size_t>(o[n]) <= data.size(), "offsets end behind the data");
  const std::uint8_t* p = data.data();
  const std::size_t first = static_cast<std::size_t>(o[0]), last = static_cast<std::size_t>(o[n]);
  bool ascii = true;
  bool good = is_utf8(p + first, last - first, ascii);
  // All of them together are: then each is, unless one begins inside a character.
  for (std::size_t i = 1; good && !ascii && i < n; ++i) good = o[i] == o[n] || (p[o[i]] & 0xc0) != 0x80;
  if (good) return -1;
  for (std::size_t i = 0; i < n; ++i)
    if (!is_utf8(p + o[i], static_cast<std::size_t>(o[i + 1] - o[i]), ascii)) return static_cast<std::int64_t>(i);
  return -1;
}

}  // namespace

void bind_utf8(nb::module_& m) { m.def("invalid_text", &invalid_text, nb::arg("data"), nb::arg("offsets")); }

}  // namespace tiltyard
