// The stream of a baseline JPEG, as windows.cpp and restarts.cpp read it: markers, Huffman codes, restart segments.
//
// Whatever is unusual or damaged is refused, never repaired: libjpeg knows how to recover. Everything is in a nameless
// namespace, because each instruction set of the processor has its own compiled copy (setup.py).

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "exported.h"

namespace {

constexpr int LOOK_BITS = 10;       // looked up at once; to make larger tables takes longer than they save
constexpr int END_OF_BLOCK = 128;   // a run that leads behind every block
constexpr int ENDS = 128;           // added to a number of bits
constexpr int TOO_FAR = 255;        // a step for what must be looked up in another way
constexpr int64_t PADDING = 256;    // bytes behind a segment: more than a block can have
constexpr size_t KEPT = 1 << 25;    // bytes: larger buffers are given back, since each thread has its own

constexpr int NOWHERE = 64;         // where coefficients behind the last one are written
constexpr int BLOCK = 64 + 32;      // coefficients and NOWHERE; a multiple of a line of the cache

// Positions of coefficients in a block, by their number; those behind the last one are NOWHERE.
struct Positions {
  uint8_t at[256];
  constexpr Positions() : at() {
    int row = 0, column = 0;
    for (int i = 0; i < 256; i++) {
      at[i] = i < 64 ? 8 * row + column : NOWHERE;
      bool up = (row + column) % 2 == 0;
      int& along = up ? column : row;
      int& back = up ? row : column;
      if (along == 7)
        back++;
      else
        along++, back -= back > 0;
    }
  }
};
constexpr Positions POSITIONS;

// --------------------------------------------------------------------------------------------------------------- bits

struct Bits {  // of one segment, most significant first; `held` of them are in `word`
  const uint8_t* at = nullptr;
  uint64_t word = 0;
  int held = 0;

  void start(const uint8_t* from) { at = from, word = 0, held = 0; }
  void refill() {  // at least 56
    uint64_t next;
    std::memcpy(&next, at, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    next = __builtin_bswap64(next);
#endif
    word |= next >> held;
    at += (63 - held) >> 3;
    held |= 56;
  }
  int peek(int count) const { return static_cast<int>(word >> (64 - count)); }
  void skip(int count) { word <<= count, held -= count; }
  const uint8_t* end() const { return at - held / 8; }  // the byte behind the last one that was begun
};

// ------------------------------------------------------------------------------------------------------ Huffman codes

struct Entry {  // of a code: its length and that of the number behind it, together in `bits`
  uint8_t bits, size, run, unused;
};

inline Entry entry_of(int length, int symbol, bool ac) {
  int run = !ac ? 0 : symbol == 0 ? END_OF_BLOCK : symbol >> 4, size = symbol & 15;
  return {static_cast<uint8_t>(length + size), static_cast<uint8_t>(size), static_cast<uint8_t>(run), 0};
}

// The number behind a code, of the bits that begin with that code; one whose first bit is 0 is negative.
inline int number_behind(Entry entry, uint64_t bits) {
  uint64_t number = bits << (entry.bits - entry.size);
  int negative = ~(static_cast<int64_t>(number) >> 63) & (1 - (1 << entry.size));
  return static_cast<int>((number >> 1) >> (63 - entry.size)) + negative;
}

struct Pair {  // one or two coefficients, where they are behind the present one, and whether the block then ends
  int16_t value1, value2;
  uint8_t step1, step2, steps, bits;
};

struct Skip {  // as many codes as are complete, with the numbers behind them
  uint8_t bits, coefficients;
  bool ends;
};

struct Codes {
  static constexpr int SIZE = 1 << LOOK_BITS;
  bool known = false;                                             // in this image
  bool usable = false, has_pairs = false, has_skips = false;      // from one that had the same
  uint8_t definition[16 + 256] = {};
  int32_t first[17], count[17], offset[17];                       // by length
  Entry look[SIZE];                                               // by the bits in front
  Pair pairs[SIZE];
  Skip skips[SIZE];

  const uint8_t* symbols() const { return definition + 16; }

  // Symbol and length of the code in front of 16 bits; a length of 0 if it is none.
  int find(int front, int& length) const {
    for (length = 1; length <= 16; length++) {
      int code = (front >> (16 - length)) - first[length];
      if (code >= 0 && code < count[length]) return symbols()[offset[length] + code];
    }
    return length = 0;
  }

  // 16 numbers of codes by length, then `total` symbols. False for codes that no image of 8 bits has.
  bool define(const uint8_t* from, int total, bool ac) {
    if (usable && !std::memcmp(definition, from, 16 + total)) return known = true;
    usable = has_pairs = has_skips = false;
    std::memcpy(definition, from, 16 + total);
    std::memset(look, 0, sizeof look);
    int code = 0, at = 0;
    for (int length = 1; length <= 16; length++, code <<= 1) {
      first[length] = code, count[length] = from[length - 1], offset[length] = at;
      for (int i = 0; i < count[length]; i++, code++, at++) {
        int symbol = symbols()[at], size = symbol & 15, rest = LOOK_BITS - length;
        bool bare = size == 0 && symbol != 0 && symbol != 0xF0;
        if (code >= 1 << length || (ac ? size > 10 || bare : symbol > 11)) return false;
        if (rest >= 0) std::fill_n(look + (code << rest), 1 << rest, entry_of(length, symbol, ac));
      }
      // The code of only ones is reserved, and libjpeg refuses a table that has it.
      if (count[length] && code >= 1 << length) return false;
    }
    return known = usable = true;
  }

  void make_pairs() {
    for (int front = 0; front < SIZE && !has_pairs; front++) pairs[front] = pair_at(front);
    has_pairs = true;
  }

  Pair pair_at(int front) const {
    Entry one = look[front];
    if (!one.bits || one.bits > LOOK_BITS) return {0, 0, 0, 0, TOO_FAR, 0};
    if (one.run == END_OF_BLOCK) return {0, 0, END_OF_BLOCK, END_OF_BLOCK, 0, static_cast<uint8_t>(one.bits | ENDS)};
    int16_t value = number_behind(one, front_bits(front));
    uint8_t step = one.run + 1;
    Pair pair = {value, value, step, step, step, one.bits};
    int next = (front << one.bits) & (SIZE - 1);
    Entry two = look[next];
    if (!two.bits || one.bits + two.bits > LOOK_BITS) return pair;
    pair.bits += two.bits;
    if (two.run == END_OF_BLOCK) {
      pair.bits |= ENDS;
      return pair;
    }
    pair.value2 = number_behind(two, front_bits(next));
    pair.step2 = pair.steps = step + two.run + 1;
    return pair;
  }

  static uint64_t front_bits(int front) { return static_cast<uint64_t>(front) << (64 - LOOK_BITS); }

  void make_skips() {
    for (int front = 0; front < SIZE && !has_skips; front++) skips[front] = skip_at(front);
    has_skips = true;
  }

  Skip skip_at(int front) const {
    Skip skip = {0, 0, false};
    while (skip.bits < LOOK_BITS && !skip.ends) {
      Entry next = look[(front << skip.bits) & (SIZE - 1)];
      if (!next.bits || skip.bits + next.bits - next.size > LOOK_BITS) break;
      skip.bits += next.bits;
      skip.ends = next.run == END_OF_BLOCK;
      skip.coefficients += skip.ends ? 0 : next.run + 1;
    }
    return skip;
  }
};

// The entry of a code that is longer than LOOK_BITS; no bits if it is none.
__attribute__((noinline)) Entry find_long(const Codes& codes, int front, bool ac) {
  int length, symbol = codes.find(front, length);
  return length ? entry_of(length, symbol, ac) : Entry{};
}

inline bool find_next(Bits& bits, const Codes& codes, bool ac, int& run, int& value) {
  Entry entry = codes.look[bits.peek(LOOK_BITS)];
  if (__builtin_expect(!entry.bits, 0)) {
    entry = find_long(codes, bits.peek(16), ac);
    if (!entry.bits) return false;
  }
  value = number_behind(entry, bits.word);
  run = entry.run;
  bits.skip(entry.bits);
  return true;
}

// ------------------------------------------------------------------------------------------------------------ markers

struct Component {
  int id, across, down, quantizer, dc, ac;  // sampling factors, tables
  int64_t width, height;                    // in samples
  int predicted;
  uint8_t* plane;                           // of the MCUs of a window, in windows.cpp
  int64_t stride;

  int64_t blocks_across() const { return (width + 7) / 8; }
  int64_t blocks_down() const { return (height + 7) / 8; }
};

enum Colors { GREY, YCC, RGB, OTHER };

struct Jfif {
  bool present;
  uint8_t version[2], density[5];  // the unit, two numbers of 16 bits
};

struct Stream {
  int32_t quantizers[4][64];
  bool quantized[4] = {};
  Codes dc[4], ac[4];
  std::vector<Component> components;
  std::vector<int> scan;  // which components it has
  int64_t width = 0, height = 0, interval = 0;
  int across = 1, down = 1;  // blocks of an MCU
  Jfif jfif = {};
  int adobe = -1;            // its number of a color transform
  bool ended = false;        // after the last scan

  std::vector<uint8_t> segment;  // kept for the next image
  const uint8_t* segment_end = nullptr;
  Bits bits;

  // Called after each image.
  void give_back(std::vector<uint8_t>& buffer) {
    if (buffer.capacity() > KEPT) std::vector<uint8_t>().swap(buffer);
  }
  void forget();  // the image before, but not tables and memory that can be used again
  const uint8_t* read_markers(const uint8_t* at, const uint8_t* end);
  bool read_marker(int marker, const uint8_t* at, const uint8_t* end);
  bool read_quantizers(const uint8_t* at, const uint8_t* end);
  bool read_codes(const uint8_t* at, const uint8_t* end);
  bool read_frame(const uint8_t* at, const uint8_t* end);
  bool read_scan(const uint8_t* at, const uint8_t* end);
  Colors colors() const;
  bool quantizers_of_bytes(const Component& component) const;
  int64_t units_across() const { return (width + 8 * across - 1) / (8 * across); }
  int64_t units_down() const { return (height + 8 * down - 1) / (8 * down); }
  const uint8_t* open_segment(const uint8_t* at, const uint8_t* end);
  const uint8_t* next_segment(const uint8_t* at, const uint8_t* end, int64_t number);
  bool close_segment() const { return bits.end() == segment_end; }
};

inline int word_at(const uint8_t* at) { return at[0] << 8 | at[1]; }

void Stream::forget() {
  components.clear();
  scan.clear();
  interval = 0, adobe = -1, jfif = {}, ended = false;
  std::fill_n(quantized, 4, false);
  for (int i = 0; i < 4; i++) dc[i].known = ac[i].known = false;
}

// Up to the entropy-coded bytes of the next scan, or behind the end of the image. Null for what is not read here.
const uint8_t* Stream::read_markers(const uint8_t* at, const uint8_t* end) {
  while (end - at >= 2) {
    if (at[0] != 0xFF) return nullptr;
    int marker = at[1];
    if (marker == 0xFF) {  // fill
      at++;
      continue;
    }
    if (marker == 0xD9) {
      ended = true;
      return at + 2;
    }
    if (end - at < 4) return nullptr;
    int length = word_at(at + 2);
    if (length < 2 || length > end - at - 2 || !read_marker(marker, at + 4, at + 2 + length)) return nullptr;
    at += 2 + length;
    if (marker == 0xDA) return at;
  }
  return nullptr;
}

bool Stream::read_marker(int marker, const uint8_t* at, const uint8_t* end) {
  if (marker == 0xDB) return read_quantizers(at, end);
  if (marker == 0xC4) return read_codes(at, end);
  if (marker == 0xC0 || marker == 0xC1) return read_frame(at, end);
  if (marker == 0xDA) return read_scan(at, end);
  if (marker == 0xDD) {
    if (end - at != 2) return false;
    interval = word_at(at);
    return true;
  }
  if (marker == 0xE0 && end - at >= 14 && !std::memcmp(at, "JFIF", 5)) {
    jfif.present = true;
    std::memcpy(jfif.version, at + 5, 2);
    std::memcpy(jfif.density, at + 7, 5);
    return jfif.version[0] == 1;  // libjpeg warns of others
  }
  if (marker == 0xEE && end - at >= 12 && !std::memcmp(at, "Adobe", 5)) adobe = at[11];
  return (marker >= 0xE0 && marker <= 0xEF) || marker == 0xFE;
}

bool Stream::read_quantizers(const uint8_t* at, const uint8_t* end) {
  if (!scan.empty()) return false;  // libjpeg keeps those of the scan before
  while (at < end) {
    int wide = *at >> 4, number = *at & 15;
    if (wide > 1 || number > 3 || end - at < 65 + 64 * wide) return false;
    at++;
    for (int i = 0; i < 64; i++, at += 1 + wide) quantizers[number][POSITIONS.at[i]] = wide ? word_at(at) : *at;
    quantized[number] = true;
  }
  return true;
}

bool Stream::read_codes(const uint8_t* at, const uint8_t* end) {
  while (end - at >= 17) {
    bool is_ac = *at >> 4;
    int number = *at & 15, total = 0;
    for (int i = 1; i <= 16; i++) total += at[i];
    if (*at > 0x13 || number > 3 || total > 256 || end - at < 17 + total) return false;
    if (!(is_ac ? ac : dc)[number].define(at + 1, total, is_ac)) return false;
    at += 17 + total;
  }
  return at == end;
}

bool Stream::read_frame(const uint8_t* at, const uint8_t* end) {
  if (!components.empty() || end - at < 6 || at[0] != 8) return false;
  height = word_at(at + 1), width = word_at(at + 3);
  int count = at[5];
  // 65,500 is libjpeg's JPEG_MAX_DIMENSION.
  if (!width || !height || std::max(width, height) > 65500) return false;
  if ((count != 1 && count != 3) || end - at != 6 + 3 * count) return false;
  across = down = 1;
  for (const uint8_t* from = at + 6; from < end; from += 3) {
    Component component = {};
    component.id = from[0], component.across = from[1] >> 4, component.down = from[1] & 15;
    component.quantizer = from[2];
    if (component.quantizer > 3 || component.across < 1 || component.across > 4 || component.down < 1 ||
        component.down > 4)
      return false;
    if (count == 1) component.across = component.down = 1;  // never interleaved: its MCU is one block
    across = std::max(across, component.across), down = std::max(down, component.down);
    components.push_back(component);
  }
  for (Component& component : components) {
    component.width = (width * component.across + across - 1) / across;
    component.height = (height * component.down + down - 1) / down;
  }
  return true;
}

// Some or all components, in their order.
bool Stream::read_scan(const uint8_t* at, const uint8_t* end) {
  int count = end > at ? *at : 0, next = 0, all = static_cast<int>(components.size());
  if (count < 1 || end - at != 4 + 2 * count) return false;
  scan.clear();
  for (at++; count; count--, at += 2) {
    while (next < all && components[next].id != at[0]) next++;
    if (next == all || at[1] >> 4 > 3 || (at[1] & 15) > 3) return false;
    Component& component = components[next];
    component.dc = at[1] >> 4, component.ac = at[1] & 15;
    if (!dc[component.dc].known || !ac[component.ac].known || !quantized[component.quantizer]) return false;
    scan.push_back(next++);
  }
  return at[0] == 0 && at[1] == 63 && at[2] == 0;
}

// Tables may also have 16 bits.
bool Stream::quantizers_of_bytes(const Component& component) const {
  const int32_t* quantizer = quantizers[component.quantizer];
  return std::all_of(quantizer, quantizer + 64, [](int32_t value) { return value < 256; });
}

// The rules of jdapimin.c; OTHER if libjpeg warns.
Colors Stream::colors() const {
  if (components.size() == 1) return GREY;
  if (jfif.present) return YCC;
  if (adobe >= 0) return adobe == 0 ? RGB : adobe == 1 ? YCC : OTHER;
  bool rgb = components[0].id == 'R' && components[1].id == 'G' && components[2].id == 'B';
  return rgb ? RGB : YCC;
}

// ----------------------------------------------------------------------------------------------------------- segments

// Copies the entropy-coded bytes up to the next marker, without the zeros that escape 0xFF. The marker's position.
const uint8_t* Stream::open_segment(const uint8_t* at, const uint8_t* end) {
  // A segment has no more bytes than up to its marker, but that is only known at the end of the copy.
  if (static_cast<int64_t>(segment.size()) < end - at + PADDING) segment.resize(end - at + PADDING);
  uint8_t* to = segment.data();
  while (at < end) {
    const void* escape = std::memchr(at, 0xFF, end - at);
    const uint8_t* stop = escape ? static_cast<const uint8_t*>(escape) : end;
    std::memcpy(to, at, stop - at);
    to += stop - at, at = stop;
    if (end - at < 2 || at[1] != 0) break;
    *to++ = 0xFF, at += 2;
  }
  std::memset(to, 0, PADDING);
  segment_end = to;
  bits.start(segment.data());
  for (Component& component : components) component.predicted = 0;
  return at;
}

// Closes segment `number` - 1 at its restart marker and opens the next one. Null if it is not that marker.
const uint8_t* Stream::next_segment(const uint8_t* at, const uint8_t* end, int64_t number) {
  if (!close_segment() || end - at < 2 || at[0] != 0xFF || at[1] != 0xD0 + (number - 1) % 8) return nullptr;
  return open_segment(at + 2, end);
}

}  // namespace
