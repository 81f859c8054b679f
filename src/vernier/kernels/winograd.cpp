// Convolutions of 3 x 3 weights with stride 1 and padding 1 by Winograd's algorithm F(4 x 4, 3 x 3), in fp32.
//
// Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015 (arXiv:1509.09308): a tile of 4 x 4 outputs
// is computed from 6 x 6 inputs with 36 products instead of 144. Inputs, weights and products are transformed by the
// matrices that the paper calls B, G and A; between them, each of the 36 points is a matrix product over channels.
//
// Images are [count][height][width][channels], weights [outputs][3][3][inputs]. The channels of points, between the
// transforms, are filled up with zeros to a multiple of CHANNELS. Each output is summed in the same order whatever the
// number of threads and images.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <omp.h>

#include "exported.h"

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16, COLUMNS = 4;
#else
constexpr int LANES = 8, COLUMNS = 2;
#endif
constexpr int ROWS = 6;  // of a block of ROWS x COLUMNS registers that the matrix product keeps
constexpr int PANEL = LANES * COLUMNS;
constexpr int POINTS = 36, TILE = 4, WINDOW = 6;
constexpr int64_t CHANNELS = 16;

inline int64_t filled_up(int64_t channels) { return (channels + CHANNELS - 1) / CHANNELS * CHANNELS; }

typedef float Vector __attribute__((vector_size(LANES * sizeof(float))));

inline Vector load(const float* from) {
  Vector values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

inline void store(float* to, Vector values) { std::memcpy(to, &values, sizeof values); }

// The same for the last channels, of which there may be fewer.
inline Vector load(const float* from, int64_t count) {
  if (count >= LANES) return load(from);
  Vector values = {};
  if (count > 0) std::memcpy(&values, from, count * sizeof(float));
  return values;
}

inline void store(float* to, Vector values, int64_t count) {
  if (count >= LANES)
    store(to, values);
  else if (count > 0)
    std::memcpy(to, &values, count * sizeof(float));
}

// ------------------------------------------------------------------------------------- transforms of one row or column

struct Inputs {  // B^T
  static constexpr int FROM = WINDOW, TO = WINDOW;
  static inline void apply(const Vector* x, Vector* out) {
    Vector even = x[4] - 4 * x[2], odd = x[3] - 4 * x[1];
    Vector even2 = x[4] - x[2], odd2 = 2 * (x[3] - x[1]);
    out[0] = 4 * x[0] - 5 * x[2] + x[4];
    out[1] = even + odd;
    out[2] = even - odd;
    out[3] = even2 + odd2;
    out[4] = even2 - odd2;
    out[5] = 4 * x[1] - 5 * x[3] + x[5];
  }
};

struct Weights {  // G
  static constexpr int FROM = 3, TO = WINDOW;
  static inline void apply(const Vector* x, Vector* out) {
    Vector even = (x[0] + x[2]) * (-1.0f / 6), odd = x[1] * (-1.0f / 6);
    Vector even2 = x[0] * (1.0f / 24) + x[2] * (1.0f / 6), odd2 = x[1] * (1.0f / 12);
    out[0] = x[0] * 0.25f;
    out[1] = even + odd;
    out[2] = even - odd;
    out[3] = even2 + odd2;
    out[4] = even2 - odd2;
    out[5] = x[2];
  }
};

struct WeightGradients {  // G^T
  static constexpr int FROM = WINDOW, TO = 3;
  static inline void apply(const Vector* x, Vector* out) {
    Vector sum = x[1] + x[2], difference = x[1] - x[2], sum2 = x[3] + x[4], difference2 = x[3] - x[4];
    out[0] = x[0] * 0.25f - sum * (1.0f / 6) + sum2 * (1.0f / 24);
    out[1] = difference2 * (1.0f / 12) - difference * (1.0f / 6);
    out[2] = (sum2 - sum) * (1.0f / 6) + x[5];
  }
};

struct Outputs {  // A^T
  static constexpr int FROM = WINDOW, TO = TILE;
  static inline void apply(const Vector* x, Vector* out) {
    Vector sum = x[1] + x[2], difference = x[1] - x[2], sum2 = x[3] + x[4], difference2 = x[3] - x[4];
    out[0] = x[0] + sum + sum2;
    out[1] = difference + 2 * difference2;
    out[2] = sum + 4 * sum2;
    out[3] = difference + 8 * difference2 + x[5];
  }
};

struct OutputGradients {  // A
  static constexpr int FROM = TILE, TO = WINDOW;
  static inline void apply(const Vector* x, Vector* out) {
    Vector even = x[0] + x[2], odd = x[1] + x[3], even2 = x[0] + 4 * x[2], odd2 = 2 * x[1] + 8 * x[3];
    out[0] = x[0];
    out[1] = even + odd;
    out[2] = even - odd;
    out[3] = even2 + odd2;
    out[4] = even2 - odd2;
    out[5] = x[3];
  }
};

// Columns, then rows. `read(row, column)` gives a vector of channels, `write(row, column, vector)` takes one.
template <class Transform, class Read, class Write>
inline void transform(Read read, Write write) {
  Vector half[Transform::TO][Transform::FROM], line[Transform::FROM], out[Transform::TO];
  for (int column = 0; column < Transform::FROM; column++) {
    for (int row = 0; row < Transform::FROM; row++) line[row] = read(row, column);
    Transform::apply(line, out);
    for (int row = 0; row < Transform::TO; row++) half[row][column] = out[row];
  }
  for (int row = 0; row < Transform::TO; row++) {
    Transform::apply(half[row], out);
    for (int column = 0; column < Transform::TO; column++) write(row, column, out[column]);
  }
}

// --------------------------------------------------------------------------------------------------------------- tiles

struct Grid {  // of the tiles of a batch
  int64_t height, width, channels, down, across;

  Grid(int64_t height, int64_t width, int64_t channels)
      : height(height), width(width), channels(channels), down((height + 3) / TILE), across((width + 3) / TILE) {}
  int64_t per_image() const { return down * across; }
  int64_t image(int64_t tile) const { return tile / per_image() * height * width * channels; }
  int64_t top(int64_t tile) const { return tile / across % down * TILE; }
  int64_t left(int64_t tile) const { return tile % across * TILE; }
  int64_t at(int64_t row, int64_t column) const { return (row * width + column) * channels; }
  bool contains(int64_t row, int64_t column) const {
    return row >= 0 && row < height && column >= 0 && column < width;
  }
};

// A window of the images that begins `border` above and left of the tile, to 36 rows of channels `step` floats apart.
template <class Transform, int BORDER>
void gather(const float* images, float* points, int64_t step, int64_t tile, const Grid& grid) {
  int64_t top = grid.top(tile) - BORDER, left = grid.left(tile) - BORDER;
  const float* image = images + grid.image(tile);
  for (int64_t channel = 0; channel < filled_up(grid.channels); channel += LANES) {
    auto read = [&](int row, int column) {
      bool inside = grid.contains(top + row, left + column);
      const float* from = image + grid.at(top + row, left + column) + channel;
      return inside ? load(from, grid.channels - channel) : Vector{};
    };
    auto write = [&](int row, int column, Vector values) {
      store(points + (row * WINDOW + column) * step + channel, values);
    };
    transform<Transform>(read, write);
  }
}

void scatter(const float* points, int64_t step, float* images, int64_t tile, const Grid& grid) {
  int64_t top = grid.top(tile), left = grid.left(tile);
  float* image = images + grid.image(tile);
  for (int64_t channel = 0; channel < grid.channels; channel += LANES) {
    auto read = [&](int row, int column) { return load(points + (row * WINDOW + column) * step + channel); };
    auto write = [&](int row, int column, Vector values) {
      float* to = image + grid.at(top + row, left + column) + channel;
      if (grid.contains(top + row, left + column)) store(to, values, grid.channels - channel);
    };
    transform<Outputs>(read, write);
  }
}

// ------------------------------------------------------------------------------------------------------ matrix product

template <int HEIGHT, int WIDTH>
void multiply_block(const float* left, int64_t inner, const float* panel, float* out, int64_t outputs) {
  Vector sums[HEIGHT][WIDTH] = {};
  for (int64_t i = 0; i < inner; i++) {
    Vector row[WIDTH];
    for (int j = 0; j < WIDTH; j++) row[j] = load(panel + (i * WIDTH + j) * LANES);
    for (int r = 0; r < HEIGHT; r++)
      for (int j = 0; j < WIDTH; j++) sums[r][j] += left[r * inner + i] * row[j];
  }
  for (int r = 0; r < HEIGHT; r++)
    for (int j = 0; j < WIDTH; j++) store(out + r * outputs + j * LANES, sums[r][j]);
}

template <int WIDTH>
void multiply_panel(
    const float* left, int64_t rows, int64_t inner, const float* panel, float* out, int64_t outputs) {
  int64_t r = 0;
  for (; r + ROWS <= rows; r += ROWS)
    multiply_block<ROWS, WIDTH>(left + r * inner, inner, panel, out + r * outputs, outputs);
  for (; r < rows; r++) multiply_block<1, WIDTH>(left + r * inner, inner, panel, out + r * outputs, outputs);
}

// out [rows][outputs] = left [rows][inner] x right, whose columns are in panels [inner][PANEL], the last one narrower.
void multiply(const float* left, int64_t rows, int64_t inner, const float* right, float* out, int64_t outputs) {
  for (int64_t j = 0; j < outputs; j += PANEL) {
    int64_t width = std::min<int64_t>(PANEL, outputs - j) / LANES;
    const float* panel = right + j * inner;
    if (width == 1) multiply_panel<1>(left, rows, inner, panel, out + j, outputs);
    if (width == 2) multiply_panel<2>(left, rows, inner, panel, out + j, outputs);
    if (width == 3) multiply_panel<3>(left, rows, inner, panel, out + j, outputs);
    if (width == 4) multiply_panel<4>(left, rows, inner, panel, out + j, outputs);
  }
}

constexpr int64_t AT_ONCE = 2 * ROWS;  // tiles whose points stay in the cache of a core

int64_t scratch_floats(int64_t inputs, int64_t outputs) {
  return POINTS * AT_ONCE * (filled_up(inputs) + filled_up(outputs));
}

}  // namespace

// ----------------------------------------------------------------------------------------------- called through ctypes

extern "C" {

// Weights to the 36 right-hand sides of `winograd_convolve`. For the gradient of the images they are turned by 180
// degrees, and inputs and outputs change places.
void EXPORTED(winograd_weights)(
    const float* weights, float* points, int64_t outputs, int64_t inputs, int backward, int threads) {
  int64_t blocks_across = filled_up(inputs) / LANES, blocks = filled_up(outputs) / LANES * blocks_across;
  int64_t rows = filled_up(backward ? outputs : inputs), columns = filled_up(backward ? inputs : outputs);
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t block = 0; block < blocks; block++) {
    int64_t output = block / blocks_across * LANES, input = block % blocks_across * LANES;
    float taps[9][LANES][LANES] = {};
    for (int64_t i = 0; i < std::min<int64_t>(LANES, outputs - output); i++)
      for (int tap = 0; tap < 9; tap++) {
        Vector values = load(weights + ((output + i) * 9 + tap) * inputs + input, inputs - input);
        if (backward)
          store(taps[8 - tap][i], values);
        else
          for (int lane = 0; lane < LANES; lane++) taps[tap][lane][i] = values[lane];
      }
    int64_t row = backward ? output : input, column = backward ? input : output;
    int64_t panel = column / PANEL * PANEL, width = std::min<int64_t>(PANEL, columns - panel);
    for (int i = 0; i < LANES; i++) {
      float* to = points + panel * rows + (row + i) * width + column - panel;
      auto read = [&](int down, int across) { return load(taps[down * 3 + across][i]); };
      auto write = [&](int down, int across, Vector values) {
        store(to + (down * WINDOW + across) * rows * columns, values);
      };
      transform<Weights>(read, write);
    }
  }
}

// Floats that each thread of `winograd_convolve` writes to.
int64_t EXPORTED(winograd_scratch)(int64_t inputs, int64_t outputs) { return scratch_floats(inputs, outputs); }

void EXPORTED(winograd_convolve)(
    const float* images, const float* weights, float* out, float* scratch, int64_t count, int64_t height, int64_t width,
    int64_t inputs, int64_t outputs, int threads) {
  Grid from(height, width, inputs), to(height, width, outputs);
  int64_t inner = filled_up(inputs), columns = filled_up(outputs);
  int64_t tiles = count * from.per_image(), blocks = (tiles + AT_ONCE - 1) / AT_ONCE;
#pragma omp parallel num_threads(threads)
  {
    float* points = scratch + omp_get_thread_num() * scratch_floats(inputs, outputs);
    float* products = points + POINTS * AT_ONCE * inner;
#pragma omp for schedule(dynamic)
    for (int64_t block = 0; block < blocks; block++) {
      int64_t first = block * AT_ONCE, rows = std::min(AT_ONCE, tiles - first);
      for (int64_t i = 0; i < rows; i++)
        gather<Inputs, 1>(images, points + i * inner, AT_ONCE * inner, first + i, from);
      for (int64_t point = 0; point < POINTS; point++)
        multiply(points + point * AT_ONCE * inner, rows, inner, weights + point * inner * columns,
                 products + point * AT_ONCE * columns, columns);
      for (int64_t i = 0; i < rows; i++) scatter(products + i * columns, AT_ONCE * columns, out, first + i, to);
    }
  }
}

// Points of all tiles, [36][tiles][channels]: of a layer's inputs, or of the gradient of its outputs.
void EXPORTED(winograd_points)(
    const float* images, float* points, int64_t count, int64_t height, int64_t width, int64_t channels, int gradients,
    int threads) {
  Grid grid(height, width, channels);
  int64_t tiles = count * grid.per_image(), row = filled_up(channels);
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t tile = 0; tile < tiles; tile++) {
    if (gradients)
      gather<OutputGradients, 0>(images, points + tile * row, tiles * row, tile, grid);
    else
      gather<Inputs, 1>(images, points + tile * row, tiles * row, tile, grid);
  }
}

// The gradient of the weights from its 36 points, [36][outputs][inputs], both filled up.
void EXPORTED(winograd_weight_gradient)(
    const float* points, float* gradient, int64_t outputs, int64_t inputs, int threads) {
  int64_t rows = filled_up(outputs), row_size = filled_up(inputs);
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t output = 0; output < outputs; output++)
    for (int64_t input = 0; input < inputs; input += LANES) {
      auto read = [&](int row, int column) {
        return load(points + ((row * WINDOW + column) * rows + output) * row_size + input);
      };
      auto write = [&](int row, int column, Vector values) {
        store(gradient + (output * 9 + row * 3 + column) * inputs + input, values, inputs - input);
      };
      transform<WeightGradients>(read, write);
    }
}

}  // extern "C"
