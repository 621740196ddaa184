#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "weft/update.h"

namespace weft {

Coefficients Coefficients::Quintic() { return {"quintic", {{3.4445, -4.7750, 2.0315}}}; }

Coefficients Coefficients::PolarExpress() {
  constexpr double kSafety = 1.05;
  Coefficients coefficients{"polar_express",
                            {{8.28721201814563, -23.595886519098837, 17.300387312530933},
                             {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
                             {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
                             {3.3184196573706015, -2.488488024314874, 0.51004894012372},
                             {2.300652019954817, -1.6689039845747493, 0.4188073119525673}}};
  for (Triple& triple : coefficients.triples) {
    triple.a /= kSafety;
    triple.b /= std::pow(kSafety, 3);
    triple.c /= std::pow(kSafety, 5);
  }
  return coefficients;
}

Coefficients Coefficients::You() {
  return {"you",
          {{4.0848, -6.8946, 2.9270},
           {3.9505, -6.3029, 2.6377},
           {3.7418, -5.5913, 2.3037},
           {2.8769, -3.1427, 1.2046},
           {2.8366, -3.0525, 1.2012}}};
}

absl::StatusOr<Coefficients> Coefficients::Named(std::string_view name) {
  if (name == "quintic") return Quintic();
  if (name == "polar_express") return PolarExpress();
  if (name == "you") return You();
  return absl::InvalidArgumentError(
      absl::StrCat("coefficients '", base::View(name), "' are not quintic, polar_express or you"));
}

}  // namespace weft
