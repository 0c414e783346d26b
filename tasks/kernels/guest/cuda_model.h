/* CUDA words for g++: threads of a block become fibres, and each access to memory is told to the model.
   Known: one- to three-dimensional grids, static __shared__, __syncthreads, __device__ functions. No warp shuffles, atomics,
   dynamic shared memory or templates with it: those do not compile. */
#pragma once
#include <math.h>
#include <stdint.h>

#define __global__
#define __device__
#define __host__
#define __restrict__ __restrict
#define __shared__ static __attribute__((section("cuda_shared")))
#define __syncthreads() model_sync()

struct uint3 { unsigned x, y, z; };
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
#define MODEL __attribute__((section("cuda_model")))
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
void model_sync();
