// Arrow structure to repetition and definition codes (file-format.md 6.5), from the outermost layer inwards.
//
// While walking, a slot's definition is a code: 0 = present, otherwise which layer is null or empty; the high bit
// marks a slot that owns no child (null, empty or hidden list). Final level numbers depend on the whole path and
// come from a small table at the end, so sibling leaves share the walk over their common ancestors.
#include <nanobind/stl/tuple.h>

#include "encode.h"

namespace tiltyard {
namespace {

constexpr std::uint16_t kSpecial = 0x8000;

std::uint64_t mark_nulls(Out<std::uint16_t> def, In<std::uint8_t> bits, std::uint64_t start, std::uint16_t code) {
  const std::size_t n = def.size(), have = bits.size() * 8;
  nb::gil_scoped_release release;
  std::size_t at = start, marked = 0;
  for (std::size_t i = 0; i < n; ++i) {
    std::uint16_t& slot = def.data()[i];
    if (slot & kSpecial) continue;
    require(at < have, "validity bits end before the slots");
    if (!bit_at(bits.data(), at++) && slot == 0) {
      slot = code;
      ++marked;
    }
  }
  return marked;
}

// Slots that the lists expand to, children that survive, lists marked null, lists marked empty, and whether a
// dropped list hides children.
std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, bool> measure_lists(
    In<std::uint16_t> def, In<std::int64_t> offsets, In<std::uint8_t> bits, std::uint64_t start) {
  require(offsets.size() > 0, "list offsets must have one entry more than lists");
  const std::size_t lists = offsets.size() - 1;
  require(bits.size() == 0 || start + lists <= bits.size() * 8, "validity bits end before the lists");
  nb::gil_scoped_release release;
  std::uint64_t slots = 0, kept = 0, nulls = 0, empties = 0, at = 0;
  bool hides = false;
  for (std::size_t i = 0; i < def.size(); ++i) {
    const std::uint16_t slot = def.data()[i];
    if (slot & kSpecial) {
      ++slots;
      continue;
    }
    require(at < lists, "fewer lists than slots");
    const std::int64_t length = offsets.data()[at + 1] - offsets.data()[at];
    require(length >= 0, "list offsets must not decrease");
    const bool valid = bits.size() == 0 || bit_at(bits.data(), start + at);
    ++at;
    if (slot != 0 || !valid || length == 0) {
      ++slots;
      if (slot == 0) (valid ? empties : nulls) += 1;
      hides |= length != 0;
    } else {
      slots += static_cast<std::uint64_t>(length);
      kept += static_cast<std::uint64_t>(length);
    }
  }
  require(at == lists, "more lists than slots");
  return {slots, kept, nulls, empties, hides};
}

std::uint64_t ravel_lists(In<std::uint16_t> rep, In<std::uint16_t> def, In<std::int64_t> offsets, In<std::uint8_t> bits,
                          std::uint64_t start, std::uint16_t rep_code, std::uint16_t null_code, std::uint16_t empty_code,
                          Out<std::uint16_t> out_rep, Out<std::uint16_t> out_def, Out<std::int64_t> children) {
  require(rep.size() == def.size() && out_rep.size() == out_def.size(), "one repetition code per definition code");
  require(offsets.size() > 0, "list offsets must have one entry more than lists");
  const std::size_t lists = offsets.size() - 1;
  require(bits.size() == 0 || start + lists <= bits.size() * 8, "validity bits end before the lists");
  nb::gil_scoped_release release;
  std::size_t at = 0, to = 0, child = 0;
  const std::size_t room = out_rep.size();
  for (std::size_t i = 0; i < def.size(); ++i) {
    const std::uint16_t slot = def.data()[i];
    const std::uint16_t r = rep.data()[i] ? rep.data()[i] : rep_code;
    if (slot & kSpecial) {
      require(to < room, "output is too small");
      out_rep.data()[to] = rep.data()[i];
      out_def.data()[to++] = slot;
      continue;
    }
    require(at < lists, "fewer lists than slots");
    const std::int64_t first = offsets.data()[at], length = offsets.data()[at + 1] - first;
    const bool valid = bits.size() == 0 || bit_at(bits.data(), start + at);
    ++at;
    if (slot != 0 || !valid || length <= 0) {
      require(to < room, "output is too small");
      out_rep.data()[to] = r;
      out_def.data()[to++] = static_cast<std::uint16_t>((slot ? slot : valid ? empty_code : null_code) | kSpecial);
      continue;
    }
    require(static_cast<std::size_t>(length) <= room - to, "output is too small");
    out_rep.data()[to] = r;
    std::memset(out_rep.data() + to + 1, 0, (static_cast<std::size_t>(length) - 1) * 2);
    std::memset(out_def.data() + to, 0, static_cast<std::size_t>(length) * 2);
    to += static_cast<std::size_t>(length);
    if (children.size()) {
      require(static_cast<std::size_t>(length) <= children.size() - child, "output is too small");
      for (std::int64_t k = 0; k < length; ++k) children.data()[child++] = first + k;
    }
  }
  require(to == room, "output has the wrong size");
  return to;
}

// Few codes: one vector pass per code over a block that stays in the cache beats a look-up per slot.
TY_CLONES bool remap_few(const std::uint16_t* codes, std::size_t n, const std::uint16_t* table, std::size_t size,
                         std::uint16_t* out) {
  constexpr std::size_t kStep = 4096;
  std::uint16_t all_known = 1;
  for (std::size_t from = 0; from < n; from += kStep) {
    const std::size_t count = n - from < kStep ? n - from : kStep;
    const std::uint16_t* c = codes + from;
    std::uint16_t* __restrict o = out + from;
    std::uint16_t top = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint16_t code = c[i] & 0x7fff;
      top = top > code ? top : code;
    }
    all_known &= top < size;
    const std::uint16_t none = table[0];
    for (std::size_t i = 0; i < count; ++i) o[i] = (c[i] & 0x7fff) == 0 ? none : 0;
    for (std::size_t k = 1; k < size; ++k) {
      const std::uint16_t level = table[k], code = static_cast<std::uint16_t>(k);
      if (level == 0) continue;
      for (std::size_t i = 0; i < count; ++i) o[i] = static_cast<std::uint16_t>(o[i] + ((c[i] & 0x7fff) == code ? level : 0));
    }
  }
  return all_known;
}

void remap_levels(In<std::uint16_t> codes, In<std::uint16_t> table, Out<std::uint16_t> out) {
  constexpr std::size_t kFew = 12;
  require(codes.size() == out.size(), "output has the wrong size");
  require(codes.size() == 0 || table.size() > 0, "a code outside the table");
  nb::gil_scoped_release release;
  if (table.size() <= kFew) {
    require(remap_few(codes.data(), codes.size(), table.data(), table.size(), out.data()), "a code outside the table");
    return;
  }
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::size_t code = codes.data()[i] & 0x7fff;
    require(code < table.size(), "a code outside the table");
    out.data()[i] = table.data()[code];
  }
}

TY_CLONES std::uint64_t nulls_of_visible(const std::uint16_t* def, std::size_t n, std::uint8_t* out) {
  std::uint64_t nulls = 0;
  for (std::size_t from = 0; from < n; from += 128) {  // short stretches count in narrow lanes
    const std::size_t count = n - from < 128 ? n - from : 128;
    std::uint8_t here = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint8_t null = def[from + i] != 0;
      out[from + i] = null;
      here = static_cast<std::uint8_t>(here + null);
    }
    nulls += here;
  }
  return nulls;
}

std::uint64_t visible_nulls(In<std::uint16_t> def, std::uint16_t max_visible, Out<std::uint8_t> out) {
  nb::gil_scoped_release release;
  const std::size_t n = def.size(), room = out.size();
  if (n == room) {
    for (std::size_t i = 0; i < n; ++i) require(def.data()[i] <= max_visible, "fewer visible slots than values");
    return nulls_of_visible(def.data(), n, out.data());
  }
  std::size_t to = 0, nulls = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint16_t level = def.data()[i];
    const bool visible = level <= max_visible;
    if (to == room) {
      require(!visible, "more visible slots than values");
      continue;
    }
    out.data()[to] = level != 0;
    to += visible;
    nulls += visible && level != 0;
  }
  require(to == room, "fewer visible slots than values");
  return nulls;
}

void level_ends(In<std::uint16_t> def, std::uint16_t max_visible, In<std::int64_t> chunk_items, Out<std::int64_t> ends) {
  require(chunk_items.size() == ends.size(), "one end per chunk");
  nb::gil_scoped_release release;
  std::size_t at = 0;
  const std::size_t n = def.size(), chunks = ends.size();
  for (std::size_t c = 0; c < chunks; ++c) {
    std::int64_t left = chunk_items.data()[c];
    while (left > 0) {
      require(at < n, "fewer visible slots than values");
      left -= def.data()[at++] <= max_visible;
    }
    ends.data()[c] = static_cast<std::int64_t>(at);
  }
  if (chunks) ends.data()[chunks - 1] = static_cast<std::int64_t>(n);
}

void repetition_index(In<std::uint16_t> rep, std::uint16_t max_rep, In<std::int64_t> ends, Out<std::uint64_t> out) {
  require(out.size() == 2 * ends.size(), "two numbers per chunk");
  nb::gil_scoped_release release;
  std::size_t from = 0;
  const std::size_t n = rep.size(), chunks = ends.size();
  for (std::size_t c = 0; c < chunks; ++c) {
    const std::size_t end = static_cast<std::size_t>(ends.data()[c]);
    require(end >= from && end <= n, "a chunk ends outside the levels");
    std::uint64_t rows = 0;
    std::size_t last_start = n;
    for (std::size_t i = from; i < end; ++i) {
      if (rep.data()[i] != max_rep) continue;
      rows += i > from;
      last_start = i;
    }
    const bool closes = c + 1 == chunks || (end < n && rep.data()[end] == max_rep);
    out.data()[2 * c] = rows + closes;
    out.data()[2 * c + 1] = closes ? 0 : last_start == n ? end - from : end - last_start;
    from = end;
  }
}

}  // namespace

void bind_levels(nb::module_& m) {
  m.def("mark_nulls", &mark_nulls, nb::arg("def_"), nb::arg("bits"), nb::arg("start"), nb::arg("code"));
  m.def("measure_lists", &measure_lists, nb::arg("def_"), nb::arg("offsets"), nb::arg("bits"), nb::arg("start"));
  m.def("ravel_lists", &ravel_lists, nb::arg("rep"), nb::arg("def_"), nb::arg("offsets"), nb::arg("bits"), nb::arg("start"),
        nb::arg("rep_code"), nb::arg("null_code"), nb::arg("empty_code"), nb::arg("out_rep"), nb::arg("out_def"),
        nb::arg("children"));
  m.def("remap_levels", &remap_levels, nb::arg("codes"), nb::arg("table"), nb::arg("out"));
  m.def("visible_nulls", &visible_nulls, nb::arg("def_"), nb::arg("max_visible"), nb::arg("out"));
  m.def("level_ends", &level_ends, nb::arg("def_"), nb::arg("max_visible"), nb::arg("chunk_items"), nb::arg("ends"));
  m.def("repetition_index", &repetition_index, nb::arg("rep"), nb::arg("max_rep"), nb::arg("ends"), nb::arg("out"));
}

}  // namespace tiltyard
