// SPDX-License-Identifier: Apache-2.0
// arch.cuh - which instructions the device code that is being compiled may contain. The compiler
// refuses the others, so code that has them is left out where a macro is 0. Host code asks
// DeviceFeatures (device_features.hpp) instead; in its pass all of these are 0.
#pragma once

// Clusters, programmatic dependent launch, mbarriers and bulk copies: sm_90 and newer, PTX too.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define FRT_ARCH_CLUSTERS 1
#else
#define FRT_ARCH_CLUSTERS 0
#endif

// Warpgroup products (wgmma), setmaxnreg: sm_90a alone.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define FRT_ARCH_WGMMA 1
#else
#define FRT_ARCH_WGMMA 0
#endif

// The same, and the pass for the host, which wants declarations that both passes share.
#if FRT_ARCH_WGMMA || !defined(__CUDA_ARCH__)
#define FRT_ARCH_WGMMA_OR_HOST 1
#else
#define FRT_ARCH_WGMMA_OR_HOST 0
#endif

// Products of FP4 by FP4 by the threads of a warp: machine code of sm_120a and 121a.
#if defined(__CUDA_ARCH_FEAT_SM120_ALL) || defined(__CUDA_ARCH_FEAT_SM121_ALL)
#define FRT_ARCH_FP4_MMA 1
#else
#define FRT_ARCH_FP4_MMA 0
#endif

// Conversions of e2m1: machine code of sm_100a, 103a, 110a, 120a and 121a.
#if defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL) || \
    defined(__CUDA_ARCH_FEAT_SM110_ALL) || defined(__CUDA_ARCH_FEAT_SM120_ALL) || \
    defined(__CUDA_ARCH_FEAT_SM121_ALL)
#define FRT_ARCH_FP4_CONVERTS 1
#else
#define FRT_ARCH_FP4_CONVERTS 0
#endif
