# CPython building, serialising and parsing element trees, as programs with lxml do.
export PYTHONMALLOC=malloc PYTHONHASHSEED=0
exec python3 -c '
import xml.etree.ElementTree as tree
root = tree.Element("root")
for i in range(30000):
    item = tree.SubElement(root, "item", id=str(i))
    tree.SubElement(item, "name").text = "name %d" % i
    tree.SubElement(item, "note").text = "a note of some length about %d" % i
text = tree.tostring(root)
for _ in range(3):
    assert len(tree.fromstring(text)) == 30000
'
