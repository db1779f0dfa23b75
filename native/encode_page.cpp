// Page assembly: chunks of a mini-block page in one call, and scattering of parts to row positions (full zip,
// packed rows).
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "encode.h"

namespace tiltyard {
namespace {

constexpr std::uint8_t kPad = 0xFE;  // content of padding is free; this is what the official writer uses

inline std::size_t to_eight(std::size_t n) { return (n + 7) / 8 * 8; }

struct Part {
  const std::uint8_t* data;
  const std::int64_t* ends;
  std::size_t size, chunks, width;  // width: bytes of the size field in the chunk header
  std::size_t at = 0;
};

// Buffers of a mini-block page (file-format.md 7.2). `levels[c]` entries in chunk c; `rep_ends` / `def_ends` empty when
// the page has none; `values` and `value_ends`: value buffers in order with the end of each chunk's share.
std::uint64_t mini_block(In<std::int64_t> levels, In<std::uint8_t> rep, In<std::int64_t> rep_ends, In<std::uint8_t> def,
                         In<std::int64_t> def_ends, std::vector<In<std::uint8_t>> values,
                         std::vector<In<std::int64_t>> value_ends, In<std::uint8_t> logs, bool large,
                         Out<std::uint8_t> words, Out<std::uint8_t> out) {
  const std::size_t chunks = levels.size(), word = large ? 4 : 2;
  require(logs.size() == chunks && words.size() == chunks * word, "one log and one word per chunk");
  require(values.size() == value_ends.size(), "one list of ends per value buffer");
  std::vector<Part> parts;
  if (rep_ends.size()) parts.push_back({rep.data(), rep_ends.data(), rep.size(), rep_ends.size(), 2});
  if (def_ends.size()) parts.push_back({def.data(), def_ends.data(), def.size(), def_ends.size(), 2});
  for (std::size_t i = 0; i < values.size(); ++i)
    parts.push_back({values[i].data(), value_ends[i].data(), values[i].size(), value_ends[i].size(), word});
  for (const Part& part : parts) require(part.chunks == chunks, "one end per chunk");
  nb::gil_scoped_release release;
  std::size_t at = 0;
  for (std::size_t c = 0; c < chunks; ++c) {
    std::size_t header = 2, total = 0;
    for (const Part& part : parts) {
      header += part.width;
      const std::int64_t end = part.ends[c];
      require(end >= static_cast<std::int64_t>(part.at) && static_cast<std::size_t>(end) <= part.size,
              "a chunk's share ends outside its buffer");
      const std::size_t size = static_cast<std::size_t>(end) - part.at;
      require(part.width == 4 ? size <= 0xffffffffu : size <= 0xffffu, "a chunk buffer is too large for its size field");
      total += to_eight(size);
    }
    total += to_eight(header);
    require(total <= (large ? std::size_t{8} << 28 : std::size_t{8} << 12), "a chunk is too large for its table word");
    require(total <= out.size() - at, "output is too small");
    require(levels.data()[c] >= 0 && levels.data()[c] <= 0xffff, "a chunk has more levels than its header can say");
    require(logs.data()[c] < 16, "a chunk has too many values");
    std::uint8_t* p = out.data() + at;
    std::memset(p + to_eight(header) - 8, kPad, 8);
    store<std::uint16_t>(p, static_cast<std::uint16_t>(levels.data()[c]));
    std::uint8_t* field = p + 2;
    p += to_eight(header);
    for (Part& part : parts) {
      const std::size_t size = static_cast<std::size_t>(part.ends[c]) - part.at;
      if (part.width == 2) {
        store<std::uint16_t>(field, static_cast<std::uint16_t>(size));
      } else {
        store<std::uint32_t>(field, static_cast<std::uint32_t>(size));
      }
      field += part.width;
      if (size) {
        std::memset(p + to_eight(size) - 8, kPad, 8);
        std::memcpy(p, part.data + part.at, size);
      }
      p += to_eight(size);
      part.at += size;
    }
    const std::uint32_t entry = static_cast<std::uint32_t>((total / 8 - 1) << 4 | logs.data()[c]);
    if (large) {
      store<std::uint32_t>(words.data() + 4 * c, entry);
    } else {
      store<std::uint16_t>(words.data() + 2 * c, static_cast<std::uint16_t>(entry));
    }
    at += total;
  }
  require(at == out.size(), "output has the wrong size");
  return at;
}

void scatter_fixed(In<std::uint8_t> values, std::uint64_t size, In<std::int64_t> positions, Out<std::uint8_t> out) {
  require(values.size() == positions.size() * size, "one position per value");
  nb::gil_scoped_release release;
  const std::size_t room = out.size();
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const std::int64_t at = positions.data()[i];
    require(at >= 0 && size <= room && static_cast<std::size_t>(at) <= room - size, "a position outside the output");
    std::memcpy(out.data() + at, values.data() + i * size, size);
  }
}

void scatter_variable(In<std::uint8_t> data, In<std::int64_t> offsets, In<std::int64_t> positions, std::uint64_t length_size,
                      Out<std::uint8_t> out) {
  require(offsets.size() == positions.size() + 1, "one position per value");
  require(length_size == 4 || length_size == 8, "a length has 4 or 8 bytes");
  nb::gil_scoped_release release;
  const std::size_t room = out.size();
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const std::int64_t at = positions.data()[i], from = offsets.data()[i], end = offsets.data()[i + 1];
    require(from >= 0 && end >= from && static_cast<std::size_t>(end) <= data.size(), "offsets outside the data");
    const std::size_t size = static_cast<std::size_t>(end - from);
    require(length_size == 8 || size <= 0xffffffffu, "a value is too long for its length field");
    require(at >= 0 && size + length_size <= room && static_cast<std::size_t>(at) <= room - size - length_size,
            "a position outside the output");
    std::uint8_t* p = out.data() + at;
    if (length_size == 4) {
      store<std::uint32_t>(p, static_cast<std::uint32_t>(size));
    } else {
      store<std::uint64_t>(p, size);
    }
    std::memcpy(p + length_size, data.data() + from, size);
  }
}

void chunk_bits(In<std::uint8_t> bits, std::uint64_t start, In<std::int64_t> chunk_bits_count, Out<std::uint8_t> out,
                Out<std::int64_t> ends) {
  require(chunk_bits_count.size() == ends.size(), "one end per chunk");
  nb::gil_scoped_release release;
  std::size_t from = start, at = 0;
  const std::size_t have = bits.size() * 8;
  for (std::size_t c = 0; c < ends.size(); ++c) {
    const std::int64_t wanted = chunk_bits_count.data()[c];
    require(wanted >= 0 && static_cast<std::size_t>(wanted) <= have - from, "bits end behind the buffer");
    const std::size_t count = static_cast<std::size_t>(wanted), bytes = (count + 7) / 8;
    require(bytes <= out.size() - at, "output is too small");
    std::memset(out.data() + at, 0, bytes);
    std::size_t i = 0;
    if (from % 8 == 0) {
      std::memcpy(out.data() + at, bits.data() + from / 8, count / 8);
      i = count / 8 * 8;
    }
    for (; i < count; ++i) out.data()[at + i / 8] |= static_cast<std::uint8_t>(bit_at(bits.data(), from + i) << (i % 8));
    from += count;
    at += bytes;
    ends.data()[c] = static_cast<std::int64_t>(at);
  }
  require(at == out.size(), "output has the wrong size");
}

}  // namespace

void bind_page(nb::module_& m) {
  m.def("mini_block", &mini_block, nb::arg("levels"), nb::arg("rep"), nb::arg("rep_ends"), nb::arg("def_"),
        nb::arg("def_ends"), nb::arg("values"), nb::arg("value_ends"), nb::arg("logs"), nb::arg("large"), nb::arg("words"),
        nb::arg("out"));
  m.def("scatter_fixed", &scatter_fixed, nb::arg("values"), nb::arg("size"), nb::arg("positions"), nb::arg("out"));
  m.def("scatter_variable", &scatter_variable, nb::arg("data"), nb::arg("offsets"), nb::arg("positions"),
        nb::arg("length_size"), nb::arg("out"));
  m.def("chunk_bits", &chunk_bits, nb::arg("bits"), nb::arg("start"), nb::arg("counts"), nb::arg("out"), nb::arg("ends"));
}

}  // namespace tiltyard
