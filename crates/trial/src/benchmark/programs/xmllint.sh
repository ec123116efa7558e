# A document of many small nodes, parsed, indented and freed.
awk 'BEGIN { print "<root>"; for (i = 0; i < 200000; i++) printf "<item id=\"%d\"><name>name %d</name><note>some text</note></item>\n", i, i; print "</root>" }' >file.xml
exec xmllint --noblanks --format file.xml --output /dev/null
