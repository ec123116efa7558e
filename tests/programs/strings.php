<?php
// Strings, arrays and objects, by PHP's own heap and (USE_ZEND_ALLOC=0) without it, between the extensions that this PHP loads:
// PHP opens those with RTLD_DEEPBIND. Ends with "ok".
$groups = [];
for ($i = 0; $i < 200000; $i++) {
    $groups["k" . ($i * 7919 % 20011)][] = str_repeat(chr(97 + $i % 26), $i % 300);
}
ksort($groups);
$text = json_encode(array_slice($groups, 0, 4000));
if (json_decode($text, true) !== array_slice($groups, 0, 4000)) exit("json differs\n");
if (unserialize(serialize($groups)) !== $groups) exit("serialize differs\n");
echo md5($text), " ", strlen(serialize($groups)), "\n";
for ($round = 0; $round < 200; $round++) {
    $ring = [];
    for ($i = 0; $i < 500; $i++) {
        $node = new stdClass;
        $node->next = $ring[$i - 1] ?? null;
        $node->back = [&$ring, str_repeat("x", $i)];
        $ring[] = $node;
    }
}
unset($ring, $node);
gc_collect_cycles();
$lengths = preg_replace_callback('/a+/', fn($match) => strlen($match[0]), str_repeat("aaab", 1000));
if ($lengths !== str_repeat("3b", 1000)) exit("preg differs\n");
foreach (get_loaded_extensions() as $extension) {
    $constants = (new ReflectionExtension($extension))->getConstants();
    foreach ($constants as $name => $value) if (is_string($value)) str_replace("a", "bb", $name . $value);
}
ob_start();
phpinfo();
if (strlen(ob_get_clean()) < 1000) exit("phpinfo is short\n");
echo "ok\n";
