// A rapidcheck property with a number of cases of its own.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdio>
#include <sstream>
#include <string>
#include <utility>

namespace weft::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Worlds are of GPUs under the fakes (weft_on_cuda_test()), where a step takes milliseconds.
#ifdef WEFT_UNDER_FAKES
inline constexpr bool kUnderFakes = true;
#else
inline constexpr bool kUnderFakes = false;
#endif

// Fails the running test unless `property` holds in `cases` cases, all drawn from the program's
// seed. Cases that take milliseconds to draw and check are not shrunk: that would take minutes.
template <typename Property>
void HoldsInCases(int cases, Property&& property) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  rc::detail::TestMetadata metadata;
  metadata.id = std::string(test->test_suite_name()) + "/" + test->name();
  metadata.description = test->name();
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  params.maxSuccess = cases;
  params.disableShrinking = true;
  const rc::detail::TestResult result =
      rc::detail::checkTestable(std::forward<Property>(property), metadata, params);
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  std::printf("%s: %s\n", metadata.id.c_str(), text.str().c_str());
  if (!result.is<rc::detail::SuccessResult>()) ADD_FAILURE() << text.str();
}

}  // namespace weft::testing
