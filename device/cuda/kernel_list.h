// Every kernel of the CUDA leaf, so that others need not list them again.
#pragma once

#include "device/cuda/kernels_matrix.h"
#include "device/cuda/kernels_norm.h"
#include "device/cuda/kernels_vector.h"
#include "device/cuda/kernels_verdict.h"
#include "device/element.h"

namespace weft::device {

template <typename... F>
struct KernelList {};

namespace internal {

template <typename... T>
struct Elements {};

// Every element type that WithElement() knows.
using AllElements = Elements<float, BF16, F16>;

template <typename... List>
struct Joined;
template <typename... F>
struct Joined<KernelList<F...>> {
  using List = KernelList<F...>;
};
template <typename... F, typename... G, typename... Rest>
struct Joined<KernelList<F...>, KernelList<G...>, Rest...> {
  using List = typename Joined<KernelList<F..., G...>, Rest...>::List;
};

template <template <typename> typename K, typename... T>
KernelList<K<T>...> OfEach(Elements<T...>);
template <template <typename, typename> typename K, typename From, typename... T>
KernelList<K<From, T>...> OfEachSecond(Elements<T...>);
template <template <typename, typename> typename K, typename... T>
typename Joined<decltype(OfEachSecond<K, T>(AllElements{}))...>::List OfEachPair(Elements<T...>);

}  // namespace internal

// clang-format off
using Kernels = internal::Joined<
    decltype(internal::OfEach<AddVector>(internal::AllElements{})),
    decltype(internal::OfEach<MomentumVector>(internal::AllElements{})),
    decltype(internal::OfEach<ApplyVector>(internal::AllElements{})),
    decltype(internal::OfEach<ApplyTiles>(internal::AllElements{})),
    decltype(internal::OfEachPair<AdamWVector>(internal::AllElements{})),
    decltype(internal::OfEachPair<MapMatrix>(internal::AllElements{})),
    decltype(internal::OfEach<ShiftDiagonalMatrix>(internal::AllElements{})),
    decltype(internal::OfEach<MirrorMatrix>(internal::AllElements{})),
    decltype(internal::OfEach<SquareSums>(internal::AllElements{})),
    decltype(internal::OfEachPair<NormalizeRows>(internal::AllElements{})),
    decltype(internal::OfEachPair<NormalizeColumns>(internal::AllElements{})),
    KernelList<CountStep, NormOfSums, SumColumnSquares, DivideByColumnNorms, TallyNorms,
               DecideStep>>::List;
// clang-format on

}  // namespace weft::device
