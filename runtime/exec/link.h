// SPDX-License-Identifier: Apache-2.0
// A link that is slower than this machine's memory: for experiments with layouts on one machine.
#ifndef MOEC_EXEC_LINK_H
#define MOEC_EXEC_LINK_H

// A token bucket: `rate` bytes per second flow in, `burst` bytes fit. What a rank gives others flows out;
// below nothing it waits until the rate has made up for it.
typedef struct Link { double rate, burst, level, then /* seconds */; } Link;
Link link_make(double rate, double now);                 // full
double link_take(Link *link, double now, double bytes);  // seconds to wait from now

#endif
