// SPDX-License-Identifier: Apache-2.0
// How much more than its share the busiest of some ranks gets. The ranks' loads are taken as normal and
// independent, so the largest of n is as many standard deviations above the mean as the largest of n normal
// numbers (Blom's approximation of its expectation).
#include <math.h>

#include "compiler/cost/cost.h"

// The standard normal's quantile (Acklam's rational approximation; relative error below 1.2e-9).
static double quantile(double p) {
    static const double a[] = { -3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                                1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00 };
    static const double b[] = { -5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                                6.680131188771972e+01, -1.328068155288572e+01 };
    static const double c[] = { -7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                                -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00 };
    static const double d[] = { 7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                                3.754408661907416e+00 };
    if (p < 0.02425 || p > 1 - 0.02425) {
        bool high = p > 0.5;
        double q = sqrt(-2 * log(high ? 1 - p : p));
        double x = (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
                   ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
        return high ? -x : x;
    }
    double q = p - 0.5, r = q * q;
    return (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
           (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
}

double cost_imbalance(CostRouting routing, double tokens, double top_k, double experts, double ranks) {
    if (ranks <= 1 || routing == COST_UNIFORM || tokens <= 0 || experts <= top_k) return 1;
    // A rank's choices of one token: hypergeometric; Dirichlet(a) over experts: relative variance of a part
    // of experts / ranks of them is (ranks - 1) / (a experts + 1).
    double mean = tokens * top_k / ranks;
    double variance = (1 - 1 / ranks) * (1 - top_k / experts) / mean;
    if (routing == COST_LEARNED) variance += (ranks - 1) / (COST_POPULARITY * experts + 1);
    return fmin(1 + quantile((ranks - 0.375) / (ranks + 0.25)) * sqrt(variance), ranks);
}
