// Which matrices travel together (buckets), whose NS runs as one (batches), and whose norms are
// summed as one.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/owner_assignment.h"
#include "weft/plan.h"

namespace weft::scheduler {

// Before owners are chosen, since a bucket has one owner: small matrices that take the same path,
// in use order, as many as limits.bucket_bytes holds. A bucket is never so dear that it would keep
// the owners' loads apart. `options` are checked.
void FormBuckets(Plan& plan, const OwnershipOptions& options);

// After: under layerwise, matrices of any owners that are reduced and published together, as the
// backward pass yields them, as many as limits.exchange_bytes holds. Custom rules have matrices to
// themselves.
void FormExchanges(Plan& plan);

// After: matrices of one owner (or that all ranks run), one cost table and one shape, in the
// batches that the table makes cheapest. In a bucket only its own matrices are one batch. Without
// tables there are none.
void FormBatches(Plan& plan, const OwnershipOptions& options);

// Periodic matrices in shards whose row norms need sums over the ranks in the same steps: one
// all-reduce brings those of all.
void FormNormSets(Plan& plan);

// Cost of the bucket whose first matrix is `m`, or of `m` alone, in the cheapest batches; FLOPs
// without tables.
double CostOfTraveller(const Plan& plan, const OwnershipOptions& options, std::int32_t m);

// The matrices of the bucket whose first is `m`, or `m` alone; both arguments must outlive the
// answer.
absl::Span<const std::int32_t> TravelsWith(const Plan& plan, const std::int32_t& m);
// Matrices alone and buckets by their first, in use order.
std::vector<std::int32_t> Travellers(const Plan& plan);

}  // namespace weft::scheduler
