/*
 * empty: starts its threads and ends. What every other case of the suite `seeds` counts its page faults above.
 *
 * Source: own. Nothing is allocated but what starting threads needs; they wait until all are there.
 */
#include "seed_case.h"

int main(int argc, char **argv)
{
    begin("empty", argc, argv);
    record_start();
    start_sleepers();
    end_sleepers();
    record();
    return print_line(0);
}
