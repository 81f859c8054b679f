// Decodes a window of a baseline JPEG, to the pixels that libjpeg-turbo gives (DCT "islow", "fancy" upsampling).
//
// What is outside the window is read past without being computed. Whatever is unusual or damaged is not decoded at all:
// the caller then asks libjpeg, which knows how to recover. Sizes in pixels, positions in bytes; an MCU (minimum coded
// unit) is the block of 8 or 16 pixels that JPEG codes together.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Lanes{__VA_ARGS__})
#endif

namespace {

constexpr int LOOK_BITS = 10;       // looked up at once; to make larger tables takes longer than they save
constexpr int END_OF_BLOCK = 128;   // a run that leads behind every block
constexpr int ENDS = 128;           // added to a number of bits
constexpr int TOO_FAR = 255;        // a step for what must be looked up in another way
constexpr int64_t PADDING = 256;    // bytes behind a segment: more than a block can have

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

// -------------------------------------------------------------------------------------------------------- inverse DCT

typedef int32_t Lanes __attribute__((vector_size(32)));
typedef int16_t Shorts __attribute__((vector_size(16)));
typedef int16_t Shorts16 __attribute__((vector_size(32)));

template <int BITS>
inline void transform(Lanes* x) {  // jidctint.c: 13 bits of fraction in the constants
  Lanes z1 = (x[2] + x[6]) * 4433, tmp2 = z1 - x[6] * 15137, tmp3 = z1 + x[2] * 6270;
  Lanes tmp0 = (x[0] + x[4]) * 8192, tmp1 = (x[0] - x[4]) * 8192;
  Lanes even0 = tmp0 + tmp3, even3 = tmp0 - tmp3, even1 = tmp1 + tmp2, even2 = tmp1 - tmp2;
  Lanes z5 = (x[7] + x[3] + x[5] + x[1]) * 9633;
  Lanes z3 = z5 - (x[7] + x[3]) * 16069, z4 = z5 - (x[5] + x[1]) * 3196;
  z1 = (x[7] + x[1]) * -7373;
  Lanes z2 = (x[5] + x[3]) * -20995;
  Lanes odd0 = x[7] * 2446 + z1 + z3, odd1 = x[5] * 16819 + z2 + z4;
  Lanes odd2 = x[3] * 25172 + z2 + z3, odd3 = x[1] * 12299 + z1 + z4;
  constexpr int HALF = 1 << (BITS - 1);
  x[0] = (even0 + odd3 + HALF) >> BITS, x[7] = (even0 - odd3 + HALF) >> BITS;
  x[1] = (even1 + odd2 + HALF) >> BITS, x[6] = (even1 - odd2 + HALF) >> BITS;
  x[2] = (even2 + odd1 + HALF) >> BITS, x[5] = (even2 - odd1 + HALF) >> BITS;
  x[3] = (even3 + odd0 + HALF) >> BITS, x[4] = (even3 - odd0 + HALF) >> BITS;
}

inline void transpose(Lanes* x) {
  Lanes a[8], b[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = SHUFFLE(x[i], x[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    a[i + 1] = SHUFFLE(x[i], x[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; j++) {
      b[i + 2 * j] = SHUFFLE(a[i + j], a[i + 2 + j], 0, 1, 8, 9, 4, 5, 12, 13);
      b[i + 2 * j + 1] = SHUFFLE(a[i + j], a[i + 2 + j], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int i = 0; i < 4; i++) {
    x[i] = SHUFFLE(b[i], b[4 + i], 0, 1, 2, 3, 8, 9, 10, 11);
    x[4 + i] = SHUFFLE(b[i], b[4 + i], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

template <class Vector, class Number>
inline Vector vector_at(const Number* from) {
  Vector values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

inline Lanes magnitude(Lanes x) { return x ^ (x >> 31); }

// Columns 2 i and 2 i + 1 as two bytes of each lane, which is a row.
inline Lanes two_columns(const Lanes* x, int i) {
  Shorts16 both = reinterpret_cast<Shorts16>((x[2 * i] & 0xFFFF) | (x[2 * i + 1] << 16)) + 128;
  both = both < 0 ? Shorts16{} : both;
  both = both > 255 ? Shorts16{} + 255 : both;
  Lanes bytes = reinterpret_cast<Lanes>(both);
  return bytes | (bytes >> 8);
}

inline void write_columns(const Lanes* x, uint8_t* pixels, int64_t stride) {
  Lanes left = (two_columns(x, 0) & 0xFFFF) | (two_columns(x, 1) << 16);
  Lanes right = (two_columns(x, 2) & 0xFFFF) | (two_columns(x, 3) << 16);
  Lanes rows[2] = {
      SHUFFLE(left, right, 0, 8, 1, 9, 2, 10, 3, 11), SHUFFLE(left, right, 4, 12, 5, 13, 6, 14, 7, 15)};
  uint64_t lines[8];
  std::memcpy(lines, rows, sizeof lines);
  for (int i = 0; i < 8; i++) std::memcpy(pixels + i * stride, lines + i, 8);
}

// One block of coefficients to 8 x 8 pixels. `large` collects magnitudes, of which libjpeg's kernels have 16 bits.
inline void compute_block(
    const int16_t* block, const int32_t* quantizer, uint8_t* pixels, int64_t stride, Lanes& large) {
  Lanes x[8];
  for (int i = 0; i < 8; i++) {
    x[i] = __builtin_convertvector(vector_at<Shorts>(block + 8 * i), Lanes) * vector_at<Lanes>(quantizer + 8 * i);
    large |= magnitude(x[i]) << 2;
  }
  transform<11>(x);
  for (int i = 0; i < 8; i++) large |= magnitude(x[i]);
  transpose(x);
  transform<18>(x);
  write_columns(x, pixels, stride);
}

inline void fill_block(int first, uint8_t* pixels, int64_t stride, Lanes& large) {  // all other coefficients are 0
  large |= magnitude(Lanes{} + first * 4);
  uint8_t value = std::clamp(((first + 4) >> 3) + 128, 0, 255);
  for (int i = 0; i < 8; i++) std::memset(pixels + i * stride, value, 8);
}

// ------------------------------------------------------------------------------------------------------------ decoder

enum Rest { DAMAGED, ZERO, PRESENT };

struct Range {
  int64_t first, end;
  bool contains(int64_t i) const { return i >= first && i < end; }
};

struct Component {
  int across, down, quantizer, dc, ac;  // sampling factors, tables
  int64_t width, height;                // in samples
  int predicted;
  uint8_t* plane;                       // of the MCUs of the window
  int64_t stride;
};

struct Window {
  int64_t left, top, width, height;
};

struct Table {  // of restart segments
  int64_t first_column, first_row, interval, unit_width, unit_height, rows, segments;
  const int64_t* edges;
};

struct Decoder {
  int32_t quantizers[4][64];
  bool quantized[4] = {};
  Codes dc[4], ac[4];
  std::vector<Component> components;
  int64_t width = 0, height = 0, interval = 0;
  int across = 1, down = 1;  // blocks of an MCU
  bool numbered = false;     // components 1, 2, 3
  Range columns, rows;       // MCUs that the window needs
  std::vector<uint8_t> segment, planes[3];  // kept for the next image
  Bits bits;

  void forget();  // the image before, but not tables and memory that can be used again
  bool read_header(const uint8_t* at, const uint8_t* end);
  bool read_quantizers(const uint8_t* at, const uint8_t* end);
  bool read_codes(const uint8_t* at, const uint8_t* end);
  bool read_frame(const uint8_t* at, const uint8_t* end);
  bool read_scan(const uint8_t* at, const uint8_t* end);
  void place(const Window& window);
  const uint8_t* open_segment(const uint8_t* at, const uint8_t* end);
  bool close_segment() const { return bits.end() == segment_end; }
  Rest read_block(Component& component, int16_t* block);
  bool skip_unit();
  bool is_exact() const;
  bool read_unit(int64_t column, int64_t row);
  bool read_stream(const uint8_t* at, const uint8_t* end);
  bool read_segments(const uint8_t* body, const uint8_t* end, const Table& table);
  void write(const Window& window, uint8_t* out) const;

  const uint8_t* segment_end = nullptr;
  Lanes large;               // magnitudes of all values, or-ed
};

inline int word_at(const uint8_t* at) { return at[0] << 8 | at[1]; }

void Decoder::forget() {
  components.clear();
  interval = 0;
  large = Lanes{};
  std::fill_n(quantized, 4, false);
  for (int i = 0; i < 4; i++) dc[i].known = ac[i].known = false;
}

// Up to the first scan; false for what is not decoded here.
bool Decoder::read_header(const uint8_t* at, const uint8_t* end) {
  bool jfif = false, adobe = false, rgb = false;  // jdapimin.c: what tells YCbCr from RGB
  if (end - at < 4 || word_at(at) != 0xFFD8) return false;
  for (at += 2; end - at >= 4;) {
    if (at[0] != 0xFF) return false;
    if (at[1] == 0xFF) {
      at++;
      continue;
    }
    int marker = at[1], length = word_at(at + 2);
    const uint8_t *content = at + 4, *next = at + 2 + length;
    bool skipped = (marker >= 0xE0 && marker <= 0xEF) || marker == 0xFE, good = true;
    if (length < 2 || next > end) return false;
    if (marker == 0xE0 && length >= 16 && !std::memcmp(content, "JFIF", 5)) {
      jfif = true;
      if (content[5] != 1) return false;  // libjpeg warns of other versions
    }
    if (marker == 0xEE && length >= 14 && !std::memcmp(content, "Adobe", 5)) adobe = true, rgb = content[11] != 1;
    if (marker == 0xDB)
      good = read_quantizers(content, next);
    else if (marker == 0xC4)
      good = read_codes(content, next);
    else if (marker == 0xDD)
      good = length == 4, interval = good ? word_at(content) : 0;
    else if (marker == 0xC0 || marker == 0xC1)
      good = read_frame(content, next);
    else if (marker == 0xDA) {
      bool colours = components.size() == 1 || jfif || (adobe ? !rgb : numbered);
      return colours && next == end && read_scan(content, next);
    } else
      good = skipped;
    if (!good) return false;
    at = next;
  }
  return false;
}

bool Decoder::read_quantizers(const uint8_t* at, const uint8_t* end) {
  while (at < end) {
    int wide = *at >> 4, number = *at & 15;
    if (wide > 1 || number > 3 || end - at < 65 + 64 * wide) return false;
    at++;
    for (int i = 0; i < 64; i++, at += 1 + wide) {
      int value = wide ? word_at(at) : *at;
      if (value > 255) return false;
      quantizers[number][POSITIONS.at[i]] = value;
    }
    quantized[number] = true;
  }
  return true;
}

bool Decoder::read_codes(const uint8_t* at, const uint8_t* end) {
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

bool Decoder::read_frame(const uint8_t* at, const uint8_t* end) {
  if (!components.empty() || end - at < 6 || at[0] != 8) return false;
  height = word_at(at + 1), width = word_at(at + 3);
  int count = at[5];
  if (!width || !height || (count != 1 && count != 3) || end - at != 6 + 3 * count) return false;
  for (int i = 0; i < count; i++) {
    const uint8_t* from = at + 6 + 3 * i;
    Component component = {};
    component.across = from[1] >> 4, component.down = from[1] & 15;
    if (from[2] > 3 || std::min(component.across, component.down) < 1 || std::max(component.across, component.down) > 4)
      return false;
    if (count == 1) component.across = component.down = 1;  // never interleaved: its MCU is one block
    component.quantizer = from[2], component.dc = from[0];
    numbered = (i == 0 || numbered) && from[0] == i + 1;
    components.push_back(component);
  }
  across = components[0].across, down = components[0].down;
  if ((across != 1 && across != 2) || (down != 1 && !(down == 2 && across == 2))) return false;
  for (size_t i = 0; i < components.size(); i++) {
    Component& component = components[i];
    if (i && (component.across != 1 || component.down != 1)) return false;
    component.width = (width * component.across + across - 1) / across;
    component.height = (height * component.down + down - 1) / down;
    if (component.width < 3) return false;  // libjpeg interpolates wider ones only
  }
  return true;
}

// One scan of all components, in their order.
bool Decoder::read_scan(const uint8_t* at, const uint8_t* end) {
  int64_t count = components.size();
  if (!count || end - at != 4 + 2 * count || at[0] != count) return false;
  for (int64_t i = 0; i < count; i++) {
    Component& component = components[i];
    int id = at[1 + 2 * i], tables = at[2 + 2 * i];
    if (id != component.dc || tables >> 4 > 3 || (tables & 15) > 3) return false;
    component.dc = tables >> 4, component.ac = tables & 15;
    if (!dc[component.dc].known || !ac[component.ac].known || !quantized[component.quantizer]) return false;
  }
  const uint8_t* spectrum = at + 1 + 2 * count;
  return spectrum[0] == 0 && spectrum[1] == 63 && spectrum[2] == 0;
}

// Which MCUs a window needs: where chroma is subsampled, one more sample around it.
void Decoder::place(const Window& window) {
  int64_t unit_width = 8 * across, unit_height = 8 * down, overlap_x = across > 1, overlap_y = down > 1;
  columns.first = std::max<int64_t>(0, window.left - overlap_x) / unit_width;
  columns.end = (std::min(width, window.left + window.width + overlap_x) + unit_width - 1) / unit_width;
  rows.first = std::max<int64_t>(0, window.top - overlap_y) / unit_height;
  rows.end = (std::min(height, window.top + window.height + overlap_y) + unit_height - 1) / unit_height;
  for (size_t i = 0; i < components.size(); i++) {
    Component& component = components[i];
    component.stride = (columns.end - columns.first) * 8 * component.across;
    size_t bytes = component.stride * (rows.end - rows.first) * 8 * component.down;
    if (planes[i].size() < bytes) planes[i].resize(bytes);
    component.plane = planes[i].data();
    ac[component.ac].make_pairs();
  }
}

// Copies the entropy-coded bytes up to the next marker, without the zeros that escape 0xFF. The marker's position.
const uint8_t* Decoder::open_segment(const uint8_t* at, const uint8_t* end) {
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

// The next coefficient, whatever its code: its number and value. ZERO if the block has no more.
inline Rest read_next(Bits& bits, const Codes& codes, int& k, int& value) {
  int run;
  if (!find_next(bits, codes, true, run, value)) return DAMAGED;
  if (run == END_OF_BLOCK) return ZERO;
  k += run + 1;
  return k > 63 ? DAMAGED : PRESENT;
}

// The coefficients of a block behind its first one; on a copy of `shared`, so that it stays in registers.
__attribute__((noinline)) Rest read_rest(Bits& shared, const Codes& codes, int16_t* block) {
  Bits bits = shared;
  int k = 0;
  while (k < 63) {
    bits.refill();
    Pair pair = codes.pairs[bits.peek(LOOK_BITS)];
    if (__builtin_expect(k + pair.steps < 63, 1)) {
      block[POSITIONS.at[k + pair.step1]] = pair.value1;
      block[POSITIONS.at[k + pair.step2]] = pair.value2;
      bits.skip(pair.bits & ~ENDS);
      k += pair.steps;
      if (pair.bits & ENDS) break;
      continue;
    }
    int value;
    Rest next = read_next(bits, codes, k, value);
    if (next == DAMAGED) return DAMAGED;
    if (next == ZERO) break;
    block[POSITIONS.at[k]] = value;
  }
  shared = bits;
  return k ? PRESENT : ZERO;
}

// The same without computing them.
__attribute__((noinline)) Rest skip_rest(Bits& shared, const Codes& codes) {
  if (!codes.has_skips) {
    int16_t unused[BLOCK];
    return read_rest(shared, codes, unused);
  }
  Bits bits = shared;
  for (int k = 0; k < 63;) {
    bits.refill();
    Skip skip = codes.skips[bits.peek(LOOK_BITS)];
    if (__builtin_expect(skip.bits && k + skip.coefficients < 63, 1)) {
      bits.skip(skip.bits);
      if (skip.ends) break;
      k += skip.coefficients;
      continue;
    }
    int value;
    Rest next = read_next(bits, codes, k, value);
    if (next == DAMAGED) return DAMAGED;
    if (next == ZERO) break;
  }
  shared = bits;
  return PRESENT;
}

// The coefficients of a block; none are kept if it is null.
Rest Decoder::read_block(Component& component, int16_t* block) {
  int run, value;
  bits.refill();
  if (!find_next(bits, dc[component.dc], false, run, value)) return DAMAGED;
  int first = component.predicted += value;
  Rest rest = block ? read_rest(bits, ac[component.ac], block) : skip_rest(bits, ac[component.ac]);
  if (block) block[0] = first;
  return bits.end() > segment_end || first != static_cast<int16_t>(first) ? DAMAGED : rest;
}

bool Decoder::skip_unit() {
  for (Component& component : components)
    for (int i = 0; i < component.across * component.down; i++)
      if (read_block(component, nullptr) == DAMAGED) return false;
  return true;
}

// All coefficients first: a processor cannot load at once what it has just stored in pieces.
bool Decoder::read_unit(int64_t column, int64_t row) {
  if (!columns.contains(column) || !rows.contains(row)) return skip_unit();
  alignas(64) int16_t blocks[6][BLOCK];
  Rest rests[6];
  std::memset(blocks, 0, sizeof blocks);
  int count = 0;
  for (Component& component : components)
    for (int i = 0; i < component.across * component.down; i++, count++)
      if (!(rests[count] = read_block(component, blocks[count]))) return false;
  Lanes values = large;
  count = 0;
  for (Component& component : components)
    for (int y = 0; y < component.down; y++)
      for (int x = 0; x < component.across; x++, count++) {
        int64_t left = ((column - columns.first) * component.across + x) * 8;
        int64_t top = ((row - rows.first) * component.down + y) * 8;
        uint8_t* pixels = component.plane + top * component.stride + left;
        const int32_t* quantizer = quantizers[component.quantizer];
        if (rests[count] == ZERO)
          fill_block(blocks[count][0] * quantizer[0], pixels, component.stride, values);
        else
          compute_block(blocks[count], quantizer, pixels, component.stride, values);
      }
  large = values;
  return true;
}

// Whether every value that was computed is one that libjpeg computes with, too.
bool Decoder::is_exact() const {
  int32_t any = 0;
  for (int i = 0; i < 8; i++) any |= large[i];
  return !(any & ~16383);
}

inline bool is_restart(const uint8_t* at, const uint8_t* end) {
  return end - at >= 2 && at[0] == 0xFF && at[1] >= 0xD0 && at[1] <= 0xD7;
}

// The whole scan, down to the last MCU that is needed.
bool Decoder::read_stream(const uint8_t* at, const uint8_t* end) {
  int64_t per_row = (width + 8 * across - 1) / (8 * across), count = 0;
  for (Component& component : components) ac[component.ac].make_skips();
  at = open_segment(at, end);
  for (int64_t row = 0; row < rows.end; row++)
    for (int64_t column = 0; column < per_row; column++, count++) {
      if (row + 1 == rows.end && column == columns.end) return true;
      if (interval && count && count % interval == 0) {
        int expected = 0xD0 + (count / interval - 1) % 8;
        if (!close_segment() || !is_restart(at, end) || at[1] != expected) return false;
        at = open_segment(at + 2, end);
      }
      if (!read_unit(column, row)) return false;
    }
  return true;
}

// Only the restart segments that a table has, each of which must begin and end where it says.
bool Decoder::read_segments(const uint8_t* body, const uint8_t* end, const Table& table) {
  if (!interval || interval != table.interval) return false;
  if (8 * across != table.unit_width || 8 * down != table.unit_height) return false;
  int64_t first = table.first_column, stop = first + table.segments * interval;
  if (first % interval || first > columns.first || columns.end > stop) return false;
  if (table.first_row > rows.first || rows.end > table.first_row + table.rows) return false;
  for (int64_t row = rows.first; row < rows.end; row++) {
    const int64_t* edges = table.edges + (row - table.first_row) * (table.segments + 1);
    for (int64_t i = 0; i < table.segments; i++) {
      if (edges[i] < 0 || edges[i] > edges[i + 1] || edges[i + 1] > end - body) return false;
      const uint8_t* marker = open_segment(body + edges[i], end);
      for (int64_t column = 0; column < interval; column++)
        if (!read_unit(first + i * interval + column, row)) return false;
      if (!close_segment() || marker + 2 != body + edges[i + 1]) return false;
    }
  }
  return true;
}

// ------------------------------------------------------------------------------------------------- chroma and colours

// A row of chroma at the size of the image, in the columns of a window.
struct Chroma {
  std::vector<int16_t> sums;
  std::vector<uint8_t> row;

  const uint8_t* read(const Component& component, const Decoder& decoder, const Window& window, int64_t y) {
    int64_t top = decoder.rows.first * 8, left = decoder.columns.first * 8;  // it has one block per MCU
    auto line = [&](int64_t at) {
      return component.plane + (std::clamp<int64_t>(at, 0, component.height - 1) - top) * component.stride - left;
    };
    if (decoder.across == 1) return line(y) + window.left;
    int64_t first = window.left / 2, end = (window.left + window.width + 1) / 2, count = end - first;
    int64_t right = left + component.stride;
    int64_t before = std::max(first - 1, left), behind = std::min({end, component.width - 1, right - 1});
    sums.resize(count + 2), row.resize(2 * count);
    int16_t* sum = sums.data() + 1;
    if (decoder.down == 2) {  // 3 : 1 of the nearer and the farther line
      const uint8_t *near = line(y / 2), *far = line(y / 2 + (y % 2 ? 1 : -1));
      for (int64_t i = 0; i < count; i++) sum[i] = 3 * near[first + i] + far[first + i];
      sum[-1] = 3 * near[before] + far[before], sum[count] = 3 * near[behind] + far[behind];
      interpolate<4, 8, 7>(sum, count);
    } else {
      const uint8_t* near = line(y);
      for (int64_t i = 0; i < count; i++) sum[i] = near[first + i];
      sum[-1] = near[before], sum[count] = near[behind];
      interpolate<2, 1, 2>(sum, count);
    }
    return row.data() + window.left % 2;
  }

  template <int BITS, int EVEN, int ODD>
  void interpolate(const int16_t* sum, int64_t count) {  // jdsample.c
    uint8_t* out = row.data();
    for (int64_t i = 0; i < count; i++) {
      out[2 * i] = (3 * sum[i] + sum[i - 1] + EVEN) >> BITS;
      out[2 * i + 1] = (3 * sum[i] + sum[i + 1] + ODD) >> BITS;
    }
  }
};

inline uint8_t limited(int value) { return value < 0 ? 0 : value > 255 ? 255 : value; }

void convert_row(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, uint8_t* out, int64_t count) {  // jdcolor.c
  for (int64_t i = 0; i < count; i++) {
    int luma = y[i], blue = cb[i] - 128, red = cr[i] - 128;
    out[3 * i] = limited(luma + ((91881 * red + 32768) >> 16));
    out[3 * i + 1] = limited(luma + ((-22554 * blue - 46802 * red + 32768) >> 16));
    out[3 * i + 2] = limited(luma + ((116130 * blue + 32768) >> 16));
  }
}

void Decoder::write(const Window& window, uint8_t* out) const {
  const Component& luma = components[0];
  Chroma blue, red;
  for (int64_t y = window.top; y < window.top + window.height; y++, out += 3 * window.width) {
    int64_t row = y - rows.first * 8 * down, column = window.left - columns.first * 8 * across;
    const uint8_t* line = luma.plane + row * luma.stride + column;
    if (components.size() == 1) {
      for (int64_t i = 0; i < window.width; i++) out[3 * i] = out[3 * i + 1] = out[3 * i + 2] = line[i];
      continue;
    }
    const uint8_t *cb = blue.read(components[1], *this, window, y), *cr = red.read(components[2], *this, window, y);
    convert_row(line, cb, cr, out, window.width);
  }
}

}  // namespace

// `header` ends with that of the scan. `body` has its entropy-coded bytes: all, or, with a table, some restart
// segments. The table has the MCU in which they begin, how many MCUs they have, the size of an MCU, numbers of rows and
// of segments per row, and for every row where its segments begin and the last one ends. Returns 0, or 1 if libjpeg must
// decode it.
extern "C" int jpeg_window(
    const uint8_t* header, int64_t header_bytes, const uint8_t* body, int64_t body_bytes, const int64_t* table,
    int64_t left, int64_t top, int64_t width, int64_t height, uint8_t* out) {
  static thread_local std::unique_ptr<Decoder> kept(new Decoder);
  Decoder& decoder = *kept;
  decoder.forget();
  if (!decoder.read_header(header, header + header_bytes) || left < 0 || top < 0 || width < 1 || height < 1) return 1;
  if (left + width > decoder.width || top + height > decoder.height) return 1;
  Window window = {left, top, width, height};
  decoder.place(window);
  bool good = table ? decoder.read_segments(
                          body, body + body_bytes,
                          {table[0], table[1], table[2], table[3], table[4], table[5], table[6], table + 7})
                    : decoder.read_stream(body, body + body_bytes);
  if (!good || !decoder.is_exact()) return 1;
  decoder.write(window, out);
  return 0;
}
