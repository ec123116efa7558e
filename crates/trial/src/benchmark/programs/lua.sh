# Tables, closures and strings under the garbage collector.
exec lua5.4 -e '
for round = 1, 3 do
  local words, tree = {}, {}
  for i = 1, 150000 do words[i] = ("word %d"):format(i) end
  for i, word in ipairs(words) do tree[i % 4096] = { word = word, next = tree[i % 4096], get = function() return word end } end
  local sum = 0
  for _, node in pairs(tree) do while node do sum = sum + #node.get(); node = node.next end end
  print(sum)
end
'
