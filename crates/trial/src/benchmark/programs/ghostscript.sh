# A page of text and curves, rendered.
cat >page.ps <<'PS'
%!PS
/Helvetica findfont 9 scalefont setfont
1 1 12 {
  /page exch def
  0 1 60 { /line exch def 40 760 line 12 mul sub moveto page 1000 mul line add 20 string cvs show
    0 1 40 { 12 mul 100 add 760 line 12 mul sub moveto 5 5 10 -5 12 3 rcurveto stroke } for } for
  showpage
} for
PS
exec gs -q -dSAFER -dBATCH -dNOPAUSE -sDEVICE=ppmraw -r100 -sOutputFile=/dev/null page.ps
