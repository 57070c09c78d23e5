// SPDX-License-Identifier: Apache-2.0
// Collectives and rows over links. A group is cut by the links it spans: within[i] of its members share
// what link i joins, so within[i] / within[i - 1] parts meet on link i.
#include <math.h>

#include "compiler/cost/cost.h"

int64_t cost_cluster_devices(const CostCluster *cluster) {
    int64_t n = 1;
    for (int32_t i = 0; i < cluster->n_links; i++) n *= cluster->links[i].size;
    return n;
}

static void scale_curve(CostCurve *curve, double factor) {
    for (int i = 0; i < curve->n; i++) curve->y[i] /= factor;
}

CostCluster cost_cluster_scaled(const CostCluster *cluster, int32_t first, double factor) {
    CostCluster copy = *cluster;
    for (int32_t i = first; i < copy.n_links; i++) {
        CostLink *link = &copy.links[i];
        link->bytes_per_s *= factor;
        for (int c = 0; c < N_COLLECTIVES; c++) {
            for (int k = 0; k < link->n_curves[c]; k++) scale_curve(&link->curves[c][k], factor);
        }
        for (int c = 0; c < 2; c++) {
            link->row_bytes_per_s[c] *= factor;
            link->block_bytes_per_s[c] *= factor;
        }
    }
    return copy;
}

// Members that share what link i joins; the outermost link joins all. i = -1: 1.
static double within(const CostCluster *cluster, CostGroup group, int32_t i) {
    if (i < 0) return 1;
    if (i == cluster->n_links - 1) return group.members;
    double joined = 1;
    for (int32_t k = 0; k <= i; k++) joined *= cluster->links[k].size;
    return fmax(1, fmin(group.members, floor(joined / group.stride)));
}

// Among `ranks` parts that meet on the link.
static double link_s(const CostLink *link, CostCollective what, double ranks, double bytes) {
    if (bytes <= 0) return 0;
    double peak = bytes / link->bytes_per_s;
    int32_t n = link->n_curves[what], i = 0;
    if (!n) return link->latency_s + peak / link->share;
    const CostCurve *curve = link->curves[what];
    while (i + 1 < n && curve[i + 1].ranks <= ranks) i++;
    double s = cost_curve_s(&curve[i], bytes);
    if (i + 1 < n && ranks > curve[i].ranks) {
        double t = log(ranks / curve[i].ranks) / log((double)curve[i + 1].ranks / curve[i].ranks);
        s *= pow(cost_curve_s(&curve[i + 1], bytes) / s, t);
    }
    return fmax(s, peak);
}

static double send_s(const CostCluster *cluster, int32_t stride, double bytes) {
    double joined = 1;
    int32_t i = 0;
    for (; i < cluster->n_links - 1; i++) {
        joined *= cluster->links[i].size;
        if (stride < joined) break;
    }
    return link_s(&cluster->links[i], COLLECTIVE_send, 2, bytes);
}

double cost_collective_s(const CostCluster *cluster, CostCollective what, CostGroup group, double bytes) {
    if (group.members <= 1 || bytes <= 0 || !cluster->n_links) return 0;
    if (what == COLLECTIVE_send) return send_s(cluster, group.stride, bytes);
    double slowest = 0, latencies = 0, of_slowest = 0;
    for (int32_t i = 0; i < cluster->n_links; i++) {
        double inner = within(cluster, group, i - 1), here = within(cluster, group, i);
        if (here <= inner) continue;
        // gather: after links outside have brought `members / here` shards of each; all_to_all: to members
        // that are first met here
        double moved = what == COLLECTIVE_all_to_all ? bytes * (here - inner) / group.members
                                                     : bytes * (1 - inner / here) / inner;
        double s = link_s(&cluster->links[i], what, here / inner, moved);
        latencies += cluster->links[i].latency_s;
        if (s > slowest) slowest = s, of_slowest = cluster->links[i].latency_s;
    }
    return slowest + latencies - of_slowest;
}

/* Rows ----------------------------------------------------------------------------------------- */

double cost_reached(double experts, double top_k, double parts) {
    if (parts <= 1 || experts <= 0) return parts <= 1 ? 1 : 0;
    double outside = experts - experts / parts, none = 1; // none of the k choices lies in a given part
    for (double i = 0; i < top_k; i++) none *= fmax(outside - i, 0) / (experts - i);
    return parts * (1 - none);
}

// One after the other, as moec's plans have it: an exchange of all tokens among the ranks that have the same place in
// their nodes, then rows within the node.
static double plan_blocks_s(const CostCluster *cluster, CostGroup group, const CostRows *rows) {
    double here = within(cluster, group, 0), nodes = group.members / here;
    CostRows inside = *rows;
    inside.blocks = false;
    double exchange = cost_collective_s(cluster, COLLECTIVE_all_to_all, (CostGroup){ (int32_t)nodes, (int32_t)here * group.stride },
                                        fmax(rows->tokens, rows->part_tokens) * nodes * rows->row_bytes);
    return exchange + cost_rows_s(cluster, (CostGroup){ (int32_t)here, group.stride }, &inside);
}

double cost_rows_s(const CostCluster *cluster, CostGroup group, const CostRows *rows) {
    if (group.members <= 1 || !cluster->n_links) return 0;
    if (rows->blocks && rows->whole && within(cluster, group, 0) < group.members) return plan_blocks_s(cluster, group, rows);
    double slowest = 0;
    for (int32_t i = 0; i < cluster->n_links; i++) {
        double inner = within(cluster, group, i - 1), here = within(cluster, group, i);
        if (here <= inner) continue;
        const CostLink *link = &cluster->links[i];
        double parts = group.members / inner, reached = cost_reached(rows->experts, rows->top_k, parts);
        double copies = rows->blocks ? reached * (1 - inner / here) : rows->top_k * (here - inner) / group.members;
        double rate = (rows->blocks ? link->block_bytes_per_s : link->row_bytes_per_s)[rows->combine];
        if (rate <= 0) rate = link->bytes_per_s * link->share;
        double fixed = link->row_fixed_s > 0 ? link->row_fixed_s : link->latency_s;
        double bytes = rows->tokens * copies * rows->row_bytes * fmax(rows->load, 1);
        slowest = fmax(slowest, fixed + bytes / fmin(rate, link->bytes_per_s));
    }
    return slowest;
}

bool cost_whole_blocks(const CostCluster *cluster) {
    const char *arch = cluster->device.arch;
    return arch && strcmp(arch, "cpu");
}

double cost_exposed_s(const CostDevice *device, double share, double compute_s, double communication_s) {
    double slow = fmax(device->contention, 1), beside_s = communication_s * share, alone_s = communication_s - beside_s;
    if (beside_s <= 0) return alone_s;
    return alone_s + (beside_s >= compute_s * slow ? beside_s - compute_s : beside_s * (1 - 1 / slow));
}
