// SPDX-License-Identifier: Apache-2.0
// bf16 matrix multiply-accumulate of a warp (PTX ISA 9.7.14.5, sm_80 and later).
//
// D [16, 8] += A [16, 16] B [16, 8], fp32 accumulators. With g = lane / 4, q = lane % 4, words of two
// bf16, the lower column or row in the low half:
//   a[0] = A[g][2q..], a[1] = A[g + 8][2q..], a[2] = A[g][2q + 8..], a[3] = A[g + 8][2q + 8..]
//   b[0] = B[2q..][g], b[1] = B[2q + 8..][g]
//   d[0], d[1] = D[g][2q..], d[2], d[3] = D[g + 8][2q..]
DEVICE void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8 x 8 matrices of bf16 from shared memory. Lanes 8i..8i + 7 give the addresses of the rows (16
// bytes each, aligned) of matrix i; lane (g, q) gets row g, columns 2q and 2q + 1 of matrix i in r[i].
DEVICE void load_matrices(uint32_t r[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
// The same of each matrix transposed: lane (g, q) gets rows 2q and 2q + 1 of column g.
DEVICE void load_matrices_turned(uint32_t r[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
