# CPython, its own small-object allocator switched off, reading and writing JSON.
export PYTHONMALLOC=malloc PYTHONHASHSEED=0
exec python3 -c '
import json
rows = [{"id": i, "name": "name %d" % i, "tags": ["t%d" % (i % 7), "u%d" % (i % 11)], "value": i * 1.5} for i in range(20000)]
text = json.dumps(rows)
for _ in range(4):
    assert json.loads(text)[19999]["id"] == 19999
print(len(text))
'
