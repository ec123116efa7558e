/*
 * strings: what a text tool does with memory: lines built word by word, split, counted in a hash table, joined again.
 *
 * Source: own. A thread works through documents. It builds each line in a string that grows by realloc, keeps the last
 * lines, splits the line into words of their own, and looks each up in a hash table: a known word is freed again, a new
 * one stays with a node; every node collects the numbers of its lines in a growing array, and the table doubles when it
 * is full. At the end of a document the table is joined into one report and everything is freed.
 *
 * Work: the documents and the lines kept are totals, divided among the threads; a document's length depends on the
 * size alone. An operation is a malloc and free, or a realloc. Live peak: the sum of the threads' own peaks, a bound.
 */
#include "workload.h"

enum { WORDS_A_LINE = 12, MAX_WORD = 16, FIRST_BUCKETS = 64, FIRST_LINES = 2 };

struct node {
    struct node *next;
    char *word;
    uint32_t *lines;
    uint32_t line_count, line_capacity;
};

struct table {
    struct node **buckets;
    size_t bucket_count, node_count; /* bucket_count is a power of two */
};

struct line {
    char *text; /* NULL when this place is free */
    size_t capacity;
};

static struct line *kept_lines;
static size_t documents, lines_a_document, lines_kept, vocabulary;

static void *get(struct worker *self, size_t bytes)
{
    count_live(self, (int64_t)bytes);
    return allocate(bytes);
}

static void put_back(struct worker *self, void *block, size_t bytes)
{
    count_live(self, -(int64_t)bytes);
    self->operations++;
    free(block);
}

static void *resize(struct worker *self, void *block, size_t old_bytes, size_t new_bytes)
{
    count_live(self, (int64_t)new_bytes - (int64_t)old_bytes);
    self->operations++;
    block = opaque(realloc(block, new_bytes));
    if (block == NULL)
        fail_memory(new_bytes);
    return block;
}

/* Writes the word of a number, 2 to 13 letters, and returns its length. */
static size_t spell(uint64_t number, char *word)
{
    uint64_t letters = mix(number + 77);
    size_t length = 2 + (letters >> 60) * 3 / 4;
    for (size_t i = 0; i < length; i++, letters /= 26)
        word[i] = (char)('a' + letters % 26);
    return length;
}

/* Small numbers far more often than large ones, as words of a language. */
static size_t random_word(struct worker *self)
{
    size_t below = vocabulary;
    for (int i = 0; i < 2; i++)
        below = 1 + random_below(&self->random, below);
    return random_below(&self->random, below);
}

static void build_line(struct worker *self, struct line *line)
{
    size_t used = 0;
    line->capacity = 32;
    line->text = get(self, line->capacity);
    for (int i = 0; i < WORDS_A_LINE; i++) {
        if (used + MAX_WORD > line->capacity) {
            line->text = resize(self, line->text, line->capacity, line->capacity + line->capacity / 2 + MAX_WORD);
            line->capacity += line->capacity / 2 + MAX_WORD;
        }
        used += spell(random_word(self), line->text + used);
        line->text[used++] = i + 1 < WORDS_A_LINE ? ' ' : '\0';
    }
}

static uint64_t hash(const char *word)
{
    uint64_t sum = 0;
    for (; *word != '\0'; word++)
        sum = sum * 31 + (unsigned char)*word;
    return mix(sum);
}

static void double_table(struct worker *self, struct table *table)
{
    size_t count = table->bucket_count * 2, bytes = table->bucket_count * sizeof(struct node *);
    struct node **buckets = get(self, bytes * 2);
    memset(buckets, 0, bytes * 2);
    for (size_t i = 0; i < table->bucket_count; i++)
        for (struct node *node = table->buckets[i], *next; node != NULL; node = next) {
            next = node->next;
            struct node **bucket = &buckets[hash(node->word) & (count - 1)];
            node->next = *bucket;
            *bucket = node;
        }
    put_back(self, table->buckets, bytes);
    table->buckets = buckets;
    table->bucket_count = count;
}

/* Counts a word, which becomes the table's own when it is new. */
static void count_word(struct worker *self, struct table *table, char *word, uint32_t line)
{
    struct node **bucket = &table->buckets[hash(word) & (table->bucket_count - 1)];
    struct node *node = *bucket;
    while (node != NULL && strcmp(node->word, word) != 0)
        node = node->next;
    if (node != NULL) {
        put_back(self, word, strlen(word) + 1);
    } else {
        node = get(self, sizeof *node);
        *node = (struct node){.next = *bucket, .word = word, .line_capacity = FIRST_LINES};
        node->lines = get(self, FIRST_LINES * sizeof *node->lines);
        *bucket = node;
        if (++table->node_count > table->bucket_count)
            double_table(self, table);
    }
    if (node->line_count == node->line_capacity) {
        size_t bytes = node->line_capacity * sizeof *node->lines;
        node->lines = resize(self, node->lines, bytes, bytes * 2);
        node->line_capacity *= 2;
    }
    node->lines[node->line_count++] = line;
}

static void split_line(struct worker *self, struct table *table, const char *text, uint32_t line)
{
    while (*text != '\0') {
        size_t length = strcspn(text, " ");
        char *word = get(self, length + 1);
        memcpy(word, text, length);
        word[length] = '\0';
        count_word(self, table, word, line);
        text += length + (text[length] == ' ');
    }
}

/* Joins all words into one string, frees the table, and adds up what it counted. */
static void report(struct worker *self, struct table *table)
{
    size_t capacity = 64, used = 0;
    uint64_t words = 0, letters = 0;
    char *text = get(self, capacity);
    for (size_t i = 0; i < table->bucket_count; i++)
        for (struct node *node = table->buckets[i], *next; node != NULL; node = next) {
            next = node->next;
            size_t length = strlen(node->word);
            if (used + length + 1 > capacity) {
                text = resize(self, text, capacity, capacity * 2);
                capacity *= 2;
            }
            memcpy(text + used, node->word, length);
            used += length;
            letters += length;
            words += node->line_count;
            put_back(self, node->word, length + 1);
            put_back(self, node->lines, node->line_capacity * sizeof *node->lines);
            put_back(self, node, sizeof *node);
        }
    text[used] = '\0';
    if (strlen(text) != letters)
        fail_check("letters of the report", letters, strlen(text));
    self->written_sum += lines_a_document * WORDS_A_LINE;
    self->read_sum += words;
    put_back(self, text, capacity);
    put_back(self, table->buckets, table->bucket_count * sizeof(struct node *));
}

static void body(struct worker *self)
{
    struct line *own = kept_lines + part_begin(lines_kept, self->index);
    size_t own_kept = part_of(lines_kept, self), own_documents = part_of(documents, self), oldest = 0;
    for (size_t document = 0; document < own_documents; document++) {
        struct table table = {.bucket_count = FIRST_BUCKETS};
        table.buckets = get(self, FIRST_BUCKETS * sizeof(struct node *));
        memset(table.buckets, 0, FIRST_BUCKETS * sizeof(struct node *));
        for (size_t line = 0; line < lines_a_document; line++) {
            struct line *place = &own[oldest];
            if (place->text != NULL)
                put_back(self, place->text, place->capacity);
            build_line(self, place);
            split_line(self, &table, place->text, (uint32_t)line);
            oldest = oldest + 1 < own_kept ? oldest + 1 : 0;
        }
        report(self, &table);
    }
    for (size_t i = 0; i < own_kept; i++)
        if (own[i].text != NULL)
            put_back(self, own[i].text, own[i].capacity);
}

int main(int argc, char **argv)
{
    begin("strings", argc, argv);
    documents = pick(80, 40);
    lines_a_document = pick(5000, 20000);
    vocabulary = pick(50000, 400000);
    lines_kept = pick(8000, 64000) + (size_t)run.threads;
    kept_lines = map_array(lines_kept, sizeof *kept_lines);
    run_threads(body);
    return finish(sum_of_peaks());
}
