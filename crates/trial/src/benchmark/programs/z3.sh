# A solver on a puzzle: many queens by integer arithmetic.
awk 'BEGIN {
  n = 22
  for (i = 1; i <= n; i++) printf "(declare-const q%d Int)(assert (and (>= q%d 1) (<= q%d %d)))\n", i, i, i, n
  for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++)
    printf "(assert (and (not (= q%d q%d)) (not (= (- q%d q%d) %d)) (not (= (- q%d q%d) %d))))\n", i, j, i, j, j - i, j, i, j - i
  print "(check-sat)"
}' >queens.smt2
exec z3 queens.smt2
