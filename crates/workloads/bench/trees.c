/*
 * trees: binary trees built and dropped, short-lived ones beside a forest of long-lived ones.
 *
 * Source: the tree benchmark of Ellis, Kovac and Boehm for collectors (GCBench, 1997) in its shape: many trees of few
 * levels that die at once, some of many levels that stay. A thread builds and drops a tree of 4 to 9 levels, and after
 * every eighth one replaces a random tree of its part of the forest, which has 12 levels.
 *
 * Work: the forest and the trees built are totals, divided among the threads. Live peak: the sum of the threads' own
 * peaks, a bound.
 */
#include "workload.h"

enum { FOREST_LEVELS = 12, LOW_LEVELS = 4, HIGH_LEVELS = 10, SHORT_TREES_A_REPLACEMENT = 8 };

struct node {
    struct node *left, *right;
    uint64_t number;
};

static struct node **forest;
static size_t forest_count, trees_built;

static struct node *build(struct worker *self, int levels, uint64_t number)
{
    struct node *node = allocate(sizeof *node);
    node->number = number;
    node->left = levels > 1 ? build(self, levels - 1, number * 2) : NULL;
    node->right = levels > 1 ? build(self, levels - 1, number * 2 + 1) : NULL;
    count_live(self, sizeof *node);
    self->written_sum += number;
    return node;
}

static void drop(struct worker *self, struct node *node, uint64_t number)
{
    if (node->number != number)
        fail_check("number of a node", number, node->number);
    self->read_sum += node->number;
    if (node->left != NULL) {
        drop(self, node->left, number * 2);
        drop(self, node->right, number * 2 + 1);
    }
    count_live(self, -(int64_t)sizeof *node);
    self->operations++;
    free(node);
}

static void body(struct worker *self)
{
    struct node **own = forest + part_begin(forest_count, self->index);
    size_t own_count = part_of(forest_count, self), own_built = part_of(trees_built, self);
    for (size_t i = 0; i < own_count; i++)
        own[i] = build(self, FOREST_LEVELS, 1);
    for (size_t i = 0; i < own_built; i++) {
        int levels = LOW_LEVELS + (int)random_below(&self->random, HIGH_LEVELS - LOW_LEVELS);
        drop(self, build(self, levels, i), i);
        if (i % SHORT_TREES_A_REPLACEMENT == 0) {
            struct node **place = &own[random_below(&self->random, own_count)];
            drop(self, *place, 1);
            *place = build(self, FOREST_LEVELS, 1);
        }
    }
    for (size_t i = 0; i < own_count; i++)
        drop(self, own[i], 1);
}

int main(int argc, char **argv)
{
    begin("trees", argc, argv);
    forest_count = pick(100, 800);
    if (forest_count < (size_t)run.threads)
        forest_count = (size_t)run.threads;
    trees_built = pick(45000, 150000);
    forest = map_array(forest_count, sizeof *forest);
    run_threads(body);
    return finish(sum_of_peaks());
}
