// What every compiled step begins with. W is the number of trainings that are computed together: with W = 1 a number is a
// number, and loops are vectorized along a training's own axes; else a number is a vector over trainings.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#if W == 1
typedef float f; typedef double d; typedef int64_t l; typedef int32_t i; typedef int16_t h; typedef int8_t c; typedef uint8_t b;
#define SIMD(x) _Pragma(#x)
#else
template <class T> struct vec { typedef T type __attribute__((vector_size(sizeof(T) * W))); };
typedef vec<float>::type f; typedef vec<double>::type d; typedef vec<int64_t>::type l; typedef vec<int32_t>::type i;
typedef vec<int16_t>::type h; typedef vec<int8_t>::type c; typedef vec<uint8_t>::type b;
#define SIMD(x)
#endif
typedef b u;
template <class T> struct scalar { typedef T type; };
#if W > 1
template <> struct scalar<f> { typedef float type; }; template <> struct scalar<d> { typedef double type; };
template <> struct scalar<l> { typedef int64_t type; }; template <> struct scalar<i> { typedef int32_t type; };
template <> struct scalar<h> { typedef int16_t type; }; template <> struct scalar<c> { typedef int8_t type; };
template <> struct scalar<b> { typedef uint8_t type; };
#endif
template <class T> using scalar_t = typename scalar<T>::type;

// Integers as wide as a number, for masks and bits.
template <size_t bytes> struct bits;
template <> struct bits<sizeof(i)> { typedef i type; }; template <> struct bits<sizeof(l)> { typedef l type; };
template <> struct bits<sizeof(h)> { typedef h type; }; template <> struct bits<sizeof(c)> { typedef c type; };
template <class T> using bits_t = typename bits<sizeof(T)>::type;

template <class T> static inline T k(scalar_t<T> x) {
#if W == 1
    return x;
#else
    return T{} + x;
#endif
}
template <class T, class S> static inline T to(S x) {
#if W == 1
    return (T)x;
#else
    return __builtin_convertvector(x, T);
#endif
}
template <class T> static inline b truth(T mask) {  // of a comparison: 0 or 1
#if W == 1
    return mask;
#else
    return __builtin_convertvector(mask, b) & 1;
#endif
}
template <class T> static inline T select(b condition, T x, T y) {
#if W == 1
    return condition ? x : y;
#else
    return __builtin_convertvector(condition, bits_t<T>) != 0 ? x : y;
#endif
}
template <class T> static inline T v_relu(T x) { return select(truth(x <= 0), T{}, x); }
template <class T> static inline T v_sign(T x) { return select(truth(x > 0), T{} + 1, select(truth(x < 0), T{} - 1, T{})); }
template <class T> static inline T larger(T x, T y) { return select(truth(x > y) | truth(x != x), x, y); }
template <class T> static inline T smaller(T x, T y) { return select(truth(x < y) | truth(x != x), x, y); }
#if W == 1
#pragma omp declare reduction(larger : f, d, l, i, h, c, b : omp_out = larger(omp_out, omp_in)) initializer(omp_priv = omp_orig)
#pragma omp declare reduction(smaller : f, d, l, i, h, c, b : omp_out = smaller(omp_out, omp_in)) initializer(omp_priv = omp_orig)
#endif
// An index that is data. Outside of the axis it becomes 0.
template <bool wraps> static inline l row(l x, int64_t size, bool& outside) {
#if W == 1
    x = wraps && x < 0 ? x + size : x;
    if (x < 0 || x >= size) outside = true, x = 0;
#else
    for (int w = 0; w < W; w++) {
        x[w] = wraps && x[w] < 0 ? x[w] + size : x[w];
        if (x[w] < 0 || x[w] >= size) outside = true, x[w] = 0;
    }
#endif
    return x;
}
// A place of all trainings, or of each one.
template <class T, class S> static inline T number(S place) {
    if constexpr (std::is_same_v<S, l>) return to<T>(place);
    else return k<T>(place);
}
template <class T> static inline T gather(const T* values, l place) {
#if W == 1
    return values[place];
#else
    T found;
    for (int w = 0; w < W; w++) found[w] = values[place[w]][w];
    return found;
#endif
}

#if W == 1
#define VECTORIZED(name) \
    extern "C" float name##f(float) __attribute__((simd("notinbranch"), const, nothrow)); \
    extern "C" double name(double) __attribute__((simd("notinbranch"), const, nothrow)); \
    static inline float v_##name(float x) { return name##f(x); } \
    static inline double v_##name(double x) { return name(x); }
#else
#define VECTORIZED(name) \
    template <class T> static inline T v_##name(T x) { \
        T y; \
        for (int w = 0; w < W; w++) y[w] = std::name(x[w]); \
        return y; \
    }
#endif
VECTORIZED(log) VECTORIZED(log1p) VECTORIZED(log2) VECTORIZED(expm1) VECTORIZED(tanh) VECTORIZED(erf)
VECTORIZED(sin) VECTORIZED(cos) VECTORIZED(atan) VECTORIZED(sinh) VECTORIZED(cosh)
#if W == 1
template <class T> static inline T v_sqrt(T x) { return std::sqrt(x); }
template <class T> static inline T v_floor(T x) { return std::floor(x); }
template <class T> static inline T v_nearbyint(T x) { return std::nearbyint(x); }
template <class T> static inline T v_pow(T x, T y) { return std::pow(x, y); }
template <class T> static inline T v_fmod(T x, T y) { return std::fmod(x, y); }
#else
VECTORIZED(sqrt) VECTORIZED(floor) VECTORIZED(nearbyint)
template <class T> static inline T v_pow(T x, T y) { T z; for (int w = 0; w < W; w++) z[w] = std::pow(x[w], y[w]); return z; }
template <class T> static inline T v_fmod(T x, T y) { T z; for (int w = 0; w < W; w++) z[w] = std::fmod(x[w], y[w]); return z; }
#endif

// exp without a branch: x = n log 2 + r, a polynomial of r, and n in the bits of the exponent.
static inline __attribute__((always_inline)) f v_exp(f x) {
    f y = select(truth(x > 88.376f), k<f>(88.376f), select(truth(x < -87.336f), k<f>(-87.336f), x));
    f t = y * 1.44269504f + 12582912.0f, n = t - 12582912.0f, r = (y - n * 0.693359375f) + n * 2.12194440e-4f;
    f p = r * (1 / 5040.0f) + 1 / 720.0f;
    p = p * r + 1 / 120.0f; p = p * r + 1 / 24.0f; p = p * r + 1 / 6.0f; p = p * r + 0.5f; p = p * r + 1.0f; p = p * r + 1.0f;
    p = p * __builtin_bit_cast(f, (__builtin_bit_cast(i, t) << 23) + 0x3f800000);
    return select(truth(x > 88.376f), k<f>(INFINITY), select(truth(x < -87.336f), k<f>(0.0f), p));
}
static inline __attribute__((always_inline)) d v_exp(d x) {
    d y = select(truth(x > 709.4), k<d>(709.4), select(truth(x < -708.3), k<d>(-708.3), x));
    d t = y * 1.4426950408889634 + 6755399441055744.0, n = t - 6755399441055744.0;
    d r = (y - n * 0.69314718036912381649) - n * 1.9082149292705877e-10;
    d p = r * (1 / 6227020800.0) + 1 / 479001600.0;
    p = p * r + 1 / 39916800.0; p = p * r + 1 / 3628800.0; p = p * r + 1 / 362880.0; p = p * r + 1 / 40320.0;
    p = p * r + 1 / 5040.0; p = p * r + 1 / 720.0; p = p * r + 1 / 120.0; p = p * r + 1 / 24.0; p = p * r + 1 / 6.0;
    p = p * r + 0.5; p = p * r + 1.0; p = p * r + 1.0;
    p = p * __builtin_bit_cast(d, (__builtin_bit_cast(l, t) << 52) + 0x3ff0000000000000);
    return select(truth(x > 709.4), k<d>(INFINITY), select(truth(x < -708.3), k<d>(0.0), p));
}
template <class T> static inline T v_sigmoid(T x) { return 1 / (1 + v_exp(-x)); }

// Matrix products in tiles of R rows by two vectors that stay in registers. With W > 1 a number is such a vector itself.
#if W == 1
#ifdef __AVX512F__
#define BYTES 64
#define TILE 12
#else
#define BYTES 32
#define TILE 6
#endif
template <class T> struct columns { typedef T type __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias)); };
template <class T> constexpr int n_columns = BYTES / sizeof(T);
#else
#define TILE 4
template <class T> struct columns { typedef T type; };
template <class T> constexpr int n_columns = 1;
#endif

template <int R, int C, int K, int ar, int ac, int br, int bc, int M, int N, class T>
static inline __attribute__((always_inline)) void tile(const T* __restrict a, const T* __restrict q, T* __restrict out, int left) {
    typedef typename columns<T>::type V;
    constexpr int n = n_columns<T>;
    V sum[R][C] = {};
    for (int x = 0; x < K; x++) {
        V right[C];
        for (int y = 0; y < C; y++) right[y] = *(const V*)(q + x * br + y * n * bc);
        for (int r = 0; r < R; r++)
            for (int y = 0; y < C; y++) sum[r][y] += a[r * ar + x * ac] * right[y];
    }
    for (int r = 0; r < R; r++)
        for (int y = 0; y < C; y++) {
            if (left >= (y + 1) * n) *(V*)(out + r * N + y * n) = sum[r][y];
            else if (left > y * n) memcpy(out + r * N + y * n, &sum[r][y], sizeof(T) * (left - y * n));
        }
}

// out (M, N) = a (M, K) times q (K, N), with the strides of rows and columns of both; out is contiguous.
template <int M, int N, int K, int ar, int ac, int br, int bc, class T>
static __attribute__((noinline)) void product(const T* __restrict a, const T* __restrict q, T* __restrict out) {
    constexpr int n = n_columns<T>, padded = (N + n - 1) / n * n, C = padded / n % 2 ? 1 : 2, rest = M % TILE;
    constexpr bool packs = n > 1 && (bc != 1 || N % n != 0);
    constexpr int step = packs ? padded : br, along = packs ? 1 : bc;
    if constexpr (packs && M * N * K <= 256) {  // packing would take longer
        for (int x = 0; x < M; x++)
            for (int y = 0; y < N; y++) {
                T sum{};
                for (int z = 0; z < K; z++) sum += a[x * ar + z * ac] * q[z * br + y * bc];
                out[x * N + y] = sum;
            }
        return;
    }
    alignas(64) static thread_local T packed[packs ? K * padded : 1];
    const T* right = q;
    if (packs) {
        for (int x = 0; x < K; x++)
            for (int y = 0; y < N; y++) packed[x * padded + y] = q[x * br + y * bc];  // the rest stays 0
        right = packed;
    }
    for (int y = 0; y < N; y += n * C) {
        for (int x = 0; x + TILE <= M; x += TILE)
            tile<TILE, C, K, ar, ac, step, along, M, N>(a + x * ar, right + y * along, out + x * N + y, N - y);
        if constexpr (rest > 0)
            tile<rest, C, K, ar, ac, step, along, M, N>(a + (M - rest) * ar, right + y * along, out + (M - rest) * N + y, N - y);
    }
}

// Sorts n numbers that lie `step` apart, equal ones in their order, NaN first or last; `places` are where they were.
template <class T> static void sort_numbers(const T* from, int64_t step, int64_t n, bool falls, bool nan_first, T* to, l* places, int64_t step_to) {
    std::vector<std::pair<scalar_t<T>, int64_t>> pairs(n);
    auto precedes = [&](auto& a, auto& b) {
        const bool one = a.first != a.first, other = b.first != b.first;  // NaN
        if (one || other) return nan_first ? one && !other : other && !one;
        return falls ? a.first > b.first : a.first < b.first;
    };
    for (int w = 0; w < W; w++) {
        for (int64_t x = 0; x < n; x++) pairs[x] = {((const scalar_t<T>*)&from[x * step])[w], x};
        std::stable_sort(pairs.begin(), pairs.end(), precedes);
        for (int64_t x = 0; x < n; x++) {
            ((scalar_t<T>*)&to[x * step_to])[w] = pairs[x].first;
            ((int64_t*)&places[x * step_to])[w] = pairs[x].second;
        }
    }
}

// Between the memory of tensors, which have the training first, and that of a program. A block that lacks trainings is
// filled up with copies of the last one.
template <class T, class S> static void load(T* to, const S* from, int64_t stride, int64_t lane, int64_t n_lanes, int64_t n) {
#if W == 1
    memcpy(to, from + lane * stride, n * sizeof(S));
#else
    for (int w = 0; w < W; w++) {
        const S* one = from + (lane + w < n_lanes ? lane + w : n_lanes - 1) * stride;
        for (int64_t x = 0; x < n; x++) to[x][w] = one[x];
    }
#endif
}
template <class T, class S> static void store(const T* from, S* to, int64_t stride, int64_t lane, int64_t n_lanes, int64_t n) {
#if W == 1
    memcpy(to + lane * stride, from, n * sizeof(S));
#else
    for (int w = 0; w < W && lane + w < n_lanes; w++)
        for (int64_t x = 0; x < n; x++) to[(lane + w) * stride + x] = from[x][w];
#endif
}
// Gives entries that do not move their old values again.
template <class T>
static void hold(T* values, const T* old, const uint8_t* moves, int64_t stride, int64_t lane, int64_t n_lanes, int64_t n) {
    for (int64_t x = 0; x < n; x++)
#if W == 1
        if (!moves[lane * stride + x]) values[x] = old[x];
#else
        for (int w = 0; w < W && lane + w < n_lanes; w++)
            if (!moves[(lane + w) * stride + x]) values[x][w] = old[x][w];
#endif
}
// Changes the entry at a place that is data: `form` is computed from the value `before`.
template <class T> static inline void set(T* values, l place, T value) {
#if W == 1
    values[place] = value;
#else
    for (int w = 0; w < W; w++) values[place[w]][w] = value[w];
#endif
}
#define CHANGE(array, place, form) { const l at_ = place; const auto before = gather(&array[0], at_); set(&array[0], at_, form); }
