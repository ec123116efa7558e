# A C compiler optimising one file of many functions.
awk 'BEGIN {
  for (i = 0; i < 150; i++)
    printf "struct s%d { int a, b; struct s%d *n; }; int f%d(struct s%d *p, int k) { int t = %d; for (int i = 0; i < k; i++) { t += p->a * i ^ p->b; if (t & 8) p = p->n; switch (t %% 5) { case 0: t -= k; break; case 1: t <<= 1; break; case 3: t ^= i; } } return t; }\n", i, i, i, i, i
}' >file.c
exec gcc -O2 -c file.c -o file.o
